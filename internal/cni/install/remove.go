package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Remove takes the plugin out of the configurations in a folder, and removes the program when no
// pod needs it any more. Runtimes delete a pod with the plugins that it was made with, which stand
// in CNI's result cache. It returns what it did, one line each. It does nothing while a process
// installs the plugin. Of a folder that is not there nothing is removed.
func Remove(binDir, confDir, results string) (done []string, err error) {
	l, err := lock(confDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := sweep(confDir); err != nil {
		return nil, err
	}
	r := &removal{}
	if err := r.configurations(confDir); err != nil || r.main {
		return r.done, err // pods would not start without the program
	}
	return r.done, r.program(filepath.Join(binDir, Plugin), results)
}

// removal is a Remove under way.
type removal struct {
	done []string
	main bool // a configuration stays that needs the program
}

func (r *removal) report(format string, args ...any) {
	r.done = append(r.done, fmt.Sprintf(format, args...))
}

// configurations restores the configurations from their backups, and then deals with the backups
// that are left.
func (r *removal) configurations(folder string) error {
	files, err := configurations(folder)
	errs := []error{err}
	for _, f := range files {
		if err := r.restore(f); err != nil {
			errs = append(errs, fmt.Errorf("CNI configuration %s: %w", f, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.backups(folder)
}

// restore takes the plugin out of a configuration.
func (r *removal) restore(path string) error {
	b, err := read(path)
	if err != nil {
		return err
	}
	n, err := parse(b)
	if err != nil && bytes.Contains(b, []byte(Plugin)) {
		return err
	}
	if err != nil || !n.hasPlugin() {
		return nil // it is none of ours
	}
	if n.isMain() {
		r.main = true
		r.report("left %s: sluice-cni makes the interfaces of pods there; remove it, and run this again", path)
		return nil
	}
	n.remove()
	if len(n.plugins) == 0 {
		return errors.New("it has no other plugin: correct it, or remove it")
	}
	if single := singleOf(path, n); single != "" {
		if err := move(single+backupSuffix, single); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		r.report("restored %s", single)
		return os.Remove(path)
	}
	text, err := n.text()
	if err != nil {
		return err
	}
	if was, err := read(path + backupSuffix); err == nil && equal(was, text) {
		text = was
	}
	r.report("restored %s", path)
	return replace(path, b, text)
}

// singleOf returns the file of the single plugin that a list was made of, if it still is that
// alone.
func singleOf(path string, n *network) string {
	for _, ext := range []string{".conf", ".json"} {
		single := strings.TrimSuffix(path, filepath.Ext(path)) + ext
		if was, err := read(single + backupSuffix); err == nil && len(n.plugins) == 1 && equal(was, n.plugins[0]) {
			return single
		}
	}
	return ""
}

// backups removes the backups. One is restored if there is no configuration at all: that was in
// force, and whoever took it away may be about to write it anew.
func (r *removal) backups(folder string) error {
	files, err := configurations(folder)
	if err != nil {
		return err
	}
	all, err := filepath.Glob(filepath.Join(folder, "*"+backupSuffix))
	if err != nil {
		return err
	}
	for _, b := range all {
		path := strings.TrimSuffix(b, backupSuffix)
		if len(files) == 0 {
			if err := move(b, path); err != nil {
				return err
			}
			r.report("restored %s", path)
			files = append(files, path)
			continue
		}
		if err := os.Remove(b); err != nil {
			return err
		}
	}
	return flush(filepath.Join(folder, "."))
}

// program removes the program, unless pods were made with it.
func (r *removal) program(path, results string) error {
	pods, err := users(results)
	if err != nil {
		return fmt.Errorf("%s is not removed: the pods that it connected are unknown: %w", path, err)
	}
	if pods > 0 {
		r.report("left %s: %d pods were made with it, and are deleted with it; run this again when they are gone", path, pods)
		return nil
	}
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		r.report("removed %s", path)
	}
	return err
}

// users counts the attachments in CNI's result cache that were made with the plugin.
func users(results string) (n int, err error) {
	entries, err := os.ReadDir(results)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		b, err := read(filepath.Join(results, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("%s: %w", e.Name(), err)
		}
		var cached struct {
			Config []byte `json:"config"`
		}
		if json.Unmarshal(b, &cached) == nil && bytes.Contains(cached.Config, []byte(`"`+Plugin+`"`)) {
			n++
		}
	}
	return n, err
}
