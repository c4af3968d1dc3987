package keeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints"
)

// Run follows interfaces, CNI's results and its configurations, until the context ends. After
// kernel messages were lost it reads everything again.
func (k *Keeper) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // no longer read
	f := follower{Keeper: k, files: files}
	defer f.remember()
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil {
			k.log.Warn("interfaces could not be followed, retrying", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return ctx.Err()
}

// follower is the state of one Run.
type follower struct {
	*Keeper
	files *fsnotify.Watcher
	saved []endpoints.Claim // claims in the file
}

// follow follows until messages may have been lost.
func (f *follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, err := subscribe(ctx)
	if err != nil {
		return err
	}
	if err := f.lookAround(true); err != nil {
		return err
	}
	tick, look := time.NewTicker(rescan), time.NewTicker(lookEvery)
	defer tick.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.unsaved:
			f.remember()
		case <-tick.C:
			f.remember() // again, if that failed
			err = f.lookAround(true)
			f.cfg.OnChange() // the renderer also reads back what is in the kernel
		case <-look.C:
			err = f.Recheck()
			f.inspectPods()
		case <-f.files.Events:
			err = f.lookAround(false)
		case lost := <-f.files.Errors:
			f.log.Debug("some changes of files may have been missed; comparing all", "error", lost)
			err = f.lookAround(false)
		case u, ok := <-updates:
			if !ok {
				return nil
			}
			f.handleUpdate(u, len(updates) == 0)
		}
		if err != nil {
			return err
		}
	}
}

// handleUpdate handles a notification of the kernel. If it is the last one in the queue, it looks up
// interfaces without a pod in CNI's results.
func (f *follower) handleUpdate(u netlink.LinkUpdate, last bool) {
	if f.isNewborn(u) {
		// without the lock: the kernel takes time; settle blocks it again
		_ = f.cfg.Gate.Block(uint32(u.Attrs().Index))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.update(u)
	f.settle()
	if e, ok := f.reg.Endpoint(uint32(u.Attrs().Index)); last && ok && e.State == endpoints.StateUnknown {
		f.find()
		f.settle()
	}
}

// isNewborn reports whether a message is about a new interface of a pod.
func (f *follower) isNewborn(u netlink.LinkUpdate) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := deviceOf(u.Link)
	_, known := f.devices[d.Index]
	return !known && u.Header.Type == unix.RTM_NEWLINK && u.Family != unix.AF_BRIDGE && d.pair && f.cfg.BlockNew && f.scope.includes(d, f.devices[d.master].Name)
}

// lookAround reads the files and, if messages may have been lost, the interfaces.
func (f *follower) lookAround(lost bool) error {
	for _, folder := range []string{f.cfg.Results, f.cfg.CNIConf} {
		if folder != "" {
			_ = f.files.Add(folder) // it may be created later
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if lost {
		if err := errors.Join(f.resync(), f.gates.inspect(f.reg.Endpoints())); err != nil {
			return err
		}
	}
	f.readScope()
	f.find()
	f.settle()
	return nil
}

// remember saves the claims for the next start if they changed since the last save.
func (f *follower) remember() {
	f.mu.Lock()
	now := f.reg.Claims()
	f.mu.Unlock()
	if f.cfg.File == "" || slices.EqualFunc(now, f.saved, sameClaim) {
		return
	}
	err := f.file.save(now)
	f.mu.Lock()
	f.problems.record("file "+f.cfg.File, err)
	f.mu.Unlock()
	if err == nil {
		f.saved = now
	}
}
