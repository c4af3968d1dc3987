package policy

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-net/sluice/api/model"
)

// feed is a Source for changes that are passed to Apply.
type feed struct {
	wake chan struct{} // holds a token if there may be changes

	mu       sync.Mutex
	whole    bool // the whole state came
	queue    []model.Changes
	revision int64
}

func newFeed() *feed { return &feed{wake: make(chan struct{}, 1)} }

// push queues changes and returns their revision: their own or, if that is not newer than the last
// one, the next number. It refuses changes of a state that is not there.
func (f *feed) push(changes model.Changes) (revision int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.whole = f.whole || changes.Resync; !f.whole {
		return 0, errors.New("changes came before the whole state: pass that first, with Resync set")
	}
	f.revision = max(f.revision+1, changes.Revision)
	changes.Revision = f.revision
	f.queue = append(f.queue, changes)
	select {
	case f.wake <- struct{}{}:
	default: // there is a token
	}
	return f.revision, nil
}

// Next implements Source.
func (f *feed) Next(ctx context.Context) (model.Changes, error) {
	for {
		if changes, ok := f.takePending(); ok {
			return changes, nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return model.Changes{}, ctx.Err()
		}
	}
}

func (f *feed) takePending() (model.Changes, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return model.Changes{}, false
	}
	changes := f.queue[0]
	f.queue[0] = model.Changes{}
	f.queue = f.queue[1:]
	return changes, true
}
