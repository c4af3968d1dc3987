package reflect

import (
	"context"

	"github.com/sluice-net/sluice/api/model"
)

// Store is the destination of the reflected state.
type Store interface {
	// List returns the entries whose keys begin with the prefix, and the revision
	// at which they were read.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Write puts entries and deletes keys. It may split them; after an error any part of them may
	// be done.
	Write(ctx context.Context, puts []model.Entry, deletes []string) error
}

// Target is a Store while a single writer owns it.
type Target interface {
	Store
	// Guard blocks while the store is certain to be the one that was written to. It always returns
	// an error: the store must then be read again.
	Guard(ctx context.Context) error
}
