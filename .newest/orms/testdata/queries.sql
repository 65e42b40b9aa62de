-- name: CreateParcel :exec
INSERT INTO parcels (id, target) VALUES ($1, $2);

-- name: CreateItem :exec
INSERT INTO items (id) VALUES ($1);
