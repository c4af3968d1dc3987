package reflect

import (
	"context"

	"github.com/sluice-net/sluice/api/model"
)

// Store is where state is reflected to.
type Store interface {
	// List returns the entries whose keys begin with the prefix, and the revision
	// at which they were read.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Write puts entries and deletes keys. It may split them; after an error any
	// part of them may be done.
	Write(ctx context.Context, puts []model.Entry, deletes []string) error
}

// Target is a Store for as long as one writer owns it.
type Target interface {
	Store
	// Guard blocks as long as the store is certain to be the one that was written to.
	// It always returns an error: afterwards what the store holds has to be read again.
	Guard(ctx context.Context) error
}
