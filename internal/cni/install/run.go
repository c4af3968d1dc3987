package install

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settleTime = 100 * time.Millisecond // for files that are being written
	retryTime  = time.Second            // after an error
	lookTime   = 30 * time.Second       // in case a notification of a change was lost
)

// state is what others may ask of an Installer that runs.
type state struct {
	mu      sync.Mutex
	problem string
}

// Problem returns why the plugin is not installed, or only in part, on one line; empty when it is.
// It may be called by any goroutine.
func (i *Installer) Problem() string {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	return i.state.problem
}

// Run installs the plugin, and again what another process undoes, until the context ends. What is
// installed stays. One process at a time does so; another one waits.
func (i *Installer) Run(ctx context.Context) error {
	files, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // the watcher is no longer needed
	for ctx.Err() == nil {
		l, err := lock(i.ConfDir)
		if err == nil {
			err = errors.Join(sweep(i.ConfDir), sweep(i.BinDir))
			i.reportState(err)
			i.follow(ctx, files)
			return errors.Join(ctx.Err(), l.Close())
		}
		i.reportState(err)
		i.pause(ctx, files, retryTime)
	}
	return ctx.Err()
}

// follow installs whenever something may have changed.
func (i *Installer) follow(ctx context.Context, files *fsnotify.Watcher) {
	last := ""
	for ctx.Err() == nil {
		for _, folder := range []string{i.ConfDir, i.BinDir} {
			_ = files.Add(folder) // it may come later
		}
		err, wait := i.install(), lookTime
		if err != nil {
			wait = retryTime
		}
		if text := line(err); text == last || err == nil { // what lasts: a file may just be written
			i.reportState(err)
		} else {
			last = text
		}
		if err == nil {
			last = ""
		}
		i.pause(ctx, files, wait)
	}
}

// pause waits for a change of files, for a time at most.
func (i *Installer) pause(ctx context.Context, files *fsnotify.Watcher, most time.Duration) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timeout.C:
		return
	case <-files.Events:
	case err := <-files.Errors:
		i.Log.Debug("some changes of files may have been missed; comparing all", "error", err)
	}
	for settle := time.After(settleTime); ; {
		select {
		case <-files.Events:
		case err := <-files.Errors:
			i.Log.Debug("some changes of files may have been missed; comparing all", "error", err)
		case <-settle:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reportState takes what is wrong, nil that nothing is.
func (i *Installer) reportState(err error) {
	i.state.mu.Lock()
	defer i.state.mu.Unlock()
	text := line(err)
	if text != "" && text != i.state.problem {
		i.Log.Warn("CNI plugin could not be installed, retrying", "error", text)
	}
	i.state.problem = text
}

// line returns the text of an error on one line.
func line(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
