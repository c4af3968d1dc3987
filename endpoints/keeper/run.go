package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/endpoints"
)

// Run follows interfaces, CNI's results and its configurations, until the context ends. When the
// kernel has more to say than is read, everything is looked at anew.
func (k *Keeper) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // nobody reads it any more
	var saved []endpoints.Claim
	defer func() { k.remember(saved) }()
	for ctx.Err() == nil {
		if err := k.follow(ctx, files, &saved); err != nil {
			k.log.Warn("interfaces could not be followed, it is tried again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return ctx.Err()
}

// follow follows until messages may have been lost.
func (k *Keeper) follow(ctx context.Context, files *fsnotify.Watcher, saved *[]endpoints.Claim) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, err := subscribe(ctx)
	if err != nil {
		return err
	}
	if err := k.lookAround(files, true); err != nil {
		return err
	}
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.unsaved:
			*saved = k.remember(*saved)
		case <-tick.C:
			*saved = k.remember(*saved) // again, if that failed
			err = k.lookAround(files, true)
			k.cfg.OnChange() // who enforces reads back what is in the kernel, too
		case <-files.Events:
			err = k.lookAround(files, false)
		case lost := <-files.Errors:
			k.log.Debug("changes of files may have been missed", "error", lost)
			err = k.lookAround(files, false)
		case u, ok := <-updates:
			if !ok {
				return nil
			}
			k.take(u, len(updates) == 0)
		}
		if err != nil {
			return err
		}
	}
}

// take takes over what the kernel says of an interface. What is nobody's is looked for in CNI's
// results if the message was the last one that waits.
func (k *Keeper) take(u netlink.LinkUpdate, last bool) {
	if k.isNewborn(u) {
		_ = k.cfg.Gate.Block(uint32(u.Attrs().Index)) // without the lock: it waits for the kernel; settle does it again
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.update(u)
	k.settle()
	if e, ok := k.reg.Endpoint(uint32(u.Attrs().Index)); last && ok && e.State == endpoints.StateUnknown {
		k.find()
		k.settle()
	}
}

// isNewborn reports whether a message is about an interface that was not known, and is one of pods.
func (k *Keeper) isNewborn(u netlink.LinkUpdate) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := deviceOf(u.Link)
	_, known := k.devices[d.Index]
	return !known && u.Header.Type == unix.RTM_NEWLINK && u.Family != unix.AF_BRIDGE && d.veth && k.cfg.BlockNew && k.scope.has(d, k.devices[d.master].Name)
}

// lookAround reads what is on disk, and the interfaces, too, if messages may have been lost.
func (k *Keeper) lookAround(files *fsnotify.Watcher, lost bool) error {
	for _, folder := range []string{k.cfg.Results, k.cfg.CNIConf} {
		if folder != "" {
			_ = files.Add(folder) // it may come later
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if lost {
		if err := errors.Join(k.resync(), k.inspect()); err != nil {
			return err
		}
	}
	k.readScope()
	k.find()
	k.settle()
	return nil
}

// inspect reads back which gates are closed. One that somebody else moved is moved again. mu is
// held.
func (k *Keeper) inspect() error {
	now, err := k.cfg.Gate.Blocked()
	if err != nil {
		return err
	}
	closed := map[uint32]bool{}
	for _, index := range now {
		closed[index] = true
	}
	for _, e := range k.reg.Endpoints() {
		index := e.Link.Index
		if closed[index] == k.blocked[index] {
			continue
		}
		k.log.Warn("somebody moved the gate of an interface, it is moved again", "interface", e.Link.Name, "pod", e.Pod, "closed", closed[index])
		delete(k.blocked, index)
		k.failed[index] = errMoved
	}
	return nil
}
