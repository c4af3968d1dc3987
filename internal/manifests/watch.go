package manifests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long the directory must be quiet before it is loaded: editors
	// and kubectl write a file in several steps.
	settle = 50 * time.Millisecond
	// settleMax is how long a directory that is never quiet is waited for.
	settleMax = 10 * settle
	// retry is how long after a failure the next Sync runs.
	retry = 2 * time.Second
)

// Run follows the directory until the context is done, and then returns nil. It
// syncs at once, and then whenever something below the directory changed. When
// the directory, a part of it or the store cannot be used, it tries again every
// few seconds.
func (d *Directory) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch manifests: %w", err)
	}
	err = d.follow(ctx, w)
	return errors.Join(err, w.Close())
}

func (d *Directory) follow(ctx context.Context, w *fsnotify.Watcher) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var first time.Time // event that was not synced yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-w.Events:
			if !ok {
				return errors.New("watch manifests: the watch ended")
			}
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			timer.Reset(min(settle, first.Add(settleMax).Sub(now)))
		case err := <-w.Errors:
			// Events may be lost: look at everything.
			d.log.Warn("watch of manifests failed, loading all of them", "dir", d.dir, "error", err)
			timer.Reset(settle)
		case <-timer.C:
			first = time.Time{}
			if err := d.watchAndSync(ctx, w); err != nil && ctx.Err() == nil {
				d.log.Warn("manifests not reflected, trying again", "dir", d.dir, "error", err)
				timer.Reset(retry)
			}
		}
	}
}

// watchAndSync watches every directory before it loads, so that a change is either
// loaded or makes an event. Hidden entries are watched too: a mounted ConfigMap
// changes by one rename of a hidden link.
func (d *Directory) watchAndSync(ctx context.Context, w *fsnotify.Watcher) error {
	tree, err := listManifests(d.dir)
	if err != nil {
		return fmt.Errorf("watch manifests: %w", err)
	}
	var errs []error
	for _, dir := range tree.dirs {
		if err := w.Add(dir); err != nil {
			errs = append(errs, fmt.Errorf("watch manifests: %s: %w", dir, err))
		}
	}
	_, err = d.Sync(ctx)
	return errors.Join(append(errs, err)...)
}
