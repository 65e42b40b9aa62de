CREATE TABLE parcels (id text PRIMARY KEY, target text NOT NULL);
CREATE TABLE items (id text PRIMARY KEY, parcel text);
