package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options of an Installer.
type Options struct {
	Log     *slog.Logger   // nil discards
	Program string         // path of the plugin that is copied
	BinDir  string         // folder of the node with CNI's plugins
	ConfDir string         // folder of the node with CNI's configurations
	Members map[string]any // of the plugin's entry, beside its type; see docs/guide/cni.md

	step func() // is called between steps; nil but for tests
}

// Installer keeps the plugin installed on a node.
type Installer struct {
	Options
	entry json.RawMessage
	state state
}

// New checks the members by the program itself, so that a mistake in them does not keep pods from
// starting. Nothing is installed.
func New(ctx context.Context, o Options) (*Installer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.step == nil {
		o.step = func() {}
	}
	entry := map[string]any{}
	maps.Copy(entry, o.Members)
	entry["type"] = Plugin
	i := &Installer{Options: o}
	var err error
	if i.entry, err = json.Marshal(entry); err != nil {
		return nil, err
	}
	return i, i.try(ctx, entry)
}

// tryTimeout bounds how long the plugin is tried, and notAvailable is CNI's code for a STATUS of a
// plugin that cannot serve now.
const (
	tryTimeout   = 10 * time.Second
	notAvailable = 50
)

// try asks the plugin for its status, with its entry as configuration. Whether the agent answers is
// no matter.
func (i *Installer) try(ctx context.Context, entry map[string]any) error {
	entry["cniVersion"], entry["name"] = "1.1.0", "sluice"
	conf, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.Program)
	cmd.Env = []string{"CNI_COMMAND=STATUS", "CNI_PATH=" + filepath.Dir(i.Program)}
	cmd.Stdin = bytes.NewReader(conf)
	out, err := cmd.Output()
	var said struct {
		Code         int
		Msg, Details string
	}
	switch {
	case err == nil, json.Unmarshal(out, &said) == nil && said.Code == notAvailable:
		return nil
	case said.Msg != "":
		return errors.New(strings.TrimSuffix(said.Msg+": "+said.Details, ": "))
	}
	return fmt.Errorf("run %s: %w", i.Program, err)
}

// install installs what is missing: the program first. It is done when there is nothing to do.
func (i *Installer) install() error {
	if err := i.copyProgram(); err != nil {
		return fmt.Errorf("copy %s to %s: %w", i.Program, i.BinDir, err)
	}
	i.step()
	return i.configure()
}

// copyProgram puts the program in its folder, unless the same is there.
func (i *Installer) copyProgram() error {
	from, err := os.Open(i.Program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // nothing was written
	to := filepath.Join(i.BinDir, Plugin)
	if same, err := isCopy(from, to); same || err != nil {
		return err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return err
	}
	temp, err := write(to, from, 0o755)
	if err != nil {
		return err
	}
	i.step()
	if err := os.Rename(temp, to); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	i.Log.Info("CNI plugin was installed", "path", to)
	return flush(to)
}

// isCopy reports whether a file is an executable copy of an open one.
func isCopy(f *os.File, path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {
		return false, err
	}
	want, err := io.ReadAll(f)
	if err != nil || int64(len(want)) != info.Size() {
		return false, err
	}
	is, err := os.ReadFile(path)
	return bytes.Equal(is, want), err
}

// configure names the plugin in the configuration that the container runtime uses: the first one by
// name that can be used. It returns an error, too, for one before it that cannot be read.
func (i *Installer) configure() error {
	files, err := configurations(i.ConfDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		b, err := read(f)
		var n *network
		if err == nil {
			n, err = parse(b)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, fmt.Errorf("CNI configuration %s: %w", f, err))
		case n.isMain():
			return errors.Join(errs...) // it is as an administrator wants it
		case n.connects():
			if err := i.chain(f, b, n); err != nil {
				errs = append(errs, fmt.Errorf("CNI configuration %s: %w", f, err))
			}
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, fmt.Errorf("no CNI configuration in %s names a network of pods yet", i.ConfDir))...)
}

// configurations returns the files that CNI reads, in its order.
func configurations(folder string) (out []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(folder, e.Name()))
		}
	}
	return out, err
}

// chain puts the plugin behind the others of a configuration.
func (i *Installer) chain(path string, old []byte, n *network) error {
	single := n.single
	had := n.hasPlugin()
	if !n.setPlugin(i.entry) {
		return nil
	}
	text, err := n.text()
	if err != nil {
		return err
	}
	switch {
	case single:
		err = i.convert(path, old, text)
	case had: // its backup is that of before
		err = replace(path, old, text)
	default:
		if err = create(path+backupSuffix, old, 0o600, true); err == nil {
			i.step()
			err = replace(path, old, text)
		}
	}
	if err == nil {
		i.Log.Info("CNI plugin was added to the configuration of the pod network", "configuration", path)
	}
	return err
}

// convert makes a list beside a single plugin, and takes the single one away then. CNI reads the
// single one first.
func (i *Installer) convert(path string, old, text []byte) error {
	list := strings.TrimSuffix(path, filepath.Ext(path)) + ".conflist"
	if err := i.makeList(list, text); err != nil {
		return fmt.Errorf("its list %s: %w", list, err)
	}
	i.step()
	backup := path + backupSuffix
	if err := os.Rename(path, backup); err != nil {
		return reason(err)
	}
	i.step()
	if now, err := read(backup); err != nil || !bytes.Equal(now, old) {
		return errors.Join(errChanged, err, move(backup, path)) // what was written meanwhile counts
	}
	return flush(path)
}

// makeList makes the list, or replaces one of ours.
func (i *Installer) makeList(list string, text []byte) error {
	err := create(list, text, 0o600, false)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	b, err := read(list)
	if err != nil {
		return err
	}
	if n, err := parse(b); err != nil || !n.hasPlugin() {
		return errors.Join(errors.New("the file exists and does not belong to Sluice"), err)
	}
	return replace(list, b, text)
}
