package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deliver tells the payment service what is in the outbox, until ctx ends. Any
// number of processes may do so at once.
func deliver(ctx context.Context, pool *pgxpool.Pool, service string) error {
	for {
		found, err := deliverOne(ctx, pool, service)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			log.Print("outbox: ", err)
		}
		if found && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// deliverOne sends the oldest message that is due.
func deliverOne(ctx context.Context, pool *pgxpool.Pool, service string) (found bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var id, cents int64
		err := tx.QueryRow(ctx, `SELECT p.id, p.cents FROM outbox o JOIN payments p ON p.id = o.payment
			WHERE o.due <= now() ORDER BY o.due LIMIT 1 FOR UPDATE OF o SKIP LOCKED`).Scan(&id, &cents)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		after := "DELETE FROM outbox WHERE payment = $1"
		if err := send(ctx, service, id, cents); err != nil {
			log.Printf("payment %d: %v", id, err)
			after = "UPDATE outbox SET due = now() + interval '1 minute' WHERE payment = $1" // others come first
		}
		_, err = tx.Exec(ctx, after, id)
		return err
	})
	return found, err
}

var client = http.Client{Timeout: 10 * time.Second}

func send(ctx context.Context, service string, id, cents int64) error {
	body := strings.NewReader(fmt.Sprintf(`{"cents":%d}`, cents))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, service, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", fmt.Sprint("payment-", id)) // the message may be sent again
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("the payment service answered %s", resp.Status)
	}
	return nil
}
