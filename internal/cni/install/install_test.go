package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// program is the real plugin, built once.
var program string

func TestMain(m *testing.M) {
	if folder := os.Getenv("SLUICE_TEST_INSTALL"); folder != "" {
		crash(folder)
	}
	dir, err := os.MkdirTemp("", "")
	if err == nil {
		program = filepath.Join(dir, Plugin)
		err = exec.Command("go", "build", "-o", program, "../../../cmd/sluice-cni").Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaks.Main(tests{m, dir})
}

// tests remove the plugin when they are done.
type tests struct {
	*testing.M
	folder string
}

func (t tests) Run() int {
	defer func() { _ = os.RemoveAll(t.folder) }()
	return t.M.Run()
}

// host is the part of a node that is installed to.
type host struct {
	testing.TB
	bin, conf, results string
}

func newHost(t testing.TB) *host {
	dir := t.TempDir()
	h := &host{t, filepath.Join(dir, "bin"), filepath.Join(dir, "net.d"), filepath.Join(dir, "results")}
	for _, d := range []string{h.bin, h.conf, h.results} {
		h.must(os.Mkdir(d, 0o755))
	}
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) installer() *Installer {
	h.Helper()
	i, err := New(context.Background(), h.options())
	h.must(err)
	return i
}

func (h *host) options() Options {
	return Options{Program: program, BinDir: h.bin, ConfDir: h.conf, Members: map[string]any{"wait": false}}
}

func (h *host) put(name, text string) {
	h.Helper()
	h.must(os.WriteFile(filepath.Join(h.conf, name), []byte(text), 0o644))
}

func (h *host) get(name string) string {
	b, err := os.ReadFile(filepath.Join(h.conf, name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (h *host) names(folder string) (out []string) {
	entries, err := os.ReadDir(folder)
	h.must(err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// types returns the plugins of the configuration that a runtime chooses.
func (h *host) types() (out []string, err error) {
	files, err := configurations(h.conf)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		n, err := parse(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if !n.connects() {
			continue
		}
		for _, p := range n.plugins {
			out = append(out, typeOf(p))
		}
		return out, nil
	}
	return nil, errors.Join(errors.New("there is no configuration"), err)
}

func (h *host) wantTypes(want ...string) {
	h.Helper()
	if got, err := h.types(); err != nil || !slices.Equal(got, want) {
		h.Errorf("plugins are %v (%v), want %v", got, err, want)
	}
}

func (h *host) remove() []string {
	h.Helper()
	done, err := Remove(h.bin, h.conf, h.results)
	h.must(err)
	return done
}

const (
	list   = `{"cniVersion": "1.0.0", "name": "pods", "x": {"big": 12345678901234567890, "a": "<b>"}, "plugins": [{"type": "bridge", "y": [1.50]}, {"type": "portmap"}]}` + "\n"
	single = `{"cniVersion": "0.3.1", "name": "pods", "type": "ptp", "mtu": 1400}`
)

func TestInstallerChainsAndRemoveRestores(t *testing.T) {
	for name, c := range map[string]struct{ file, text, became, main string }{
		"a list":             {"10-a.conflist", list, "10-a.conflist", "bridge portmap"},
		"a single plugin":    {"10-a.conf", single, "10-a.conflist", "ptp"},
		"one with .json":     {"10-a.json", single, "10-a.conflist", "ptp"},
		"a list that has it": {"10-a.conflist", `{"name": "n", "plugins": [{"type": "bridge"}, {"type": "sluice-cni", "old": 1}, {"type": "istio-cni"}, {"type": "sluice-cni"}]}`, "10-a.conflist", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.put(c.file, c.text)
			h.put("00-lo.conf", `{"name": "lo", "type": "loopback"}`)
			i := h.installer()
			h.must(i.install())
			first, files := h.get(c.became), h.names(h.conf)
			if c.main == "" {
				h.wantTypes("bridge", Plugin, "istio-cni")
			} else {
				h.wantTypes(append(strings.Fields(c.main), Plugin)...)
			}
			if c.text == list && (!strings.Contains(first, "12345678901234567890") || !strings.Contains(first, `"<b>"`) || !strings.Contains(first, "1.50")) {
				t.Errorf("members are not as they were: %s", first)
			}
			h.must(i.install())
			if again := h.get(c.became); again != first || !slices.Equal(files, h.names(h.conf)) {
				t.Errorf("installed again: %s and %v, before %v", again, h.names(h.conf), files)
			}
			h.remove()
			if c.main == "" {
				h.wantTypes("bridge", "istio-cni")
				return
			}
			if got := h.get(c.file); got != c.text || len(h.names(h.conf)) != 2 || len(h.names(h.bin)) != 0 {
				t.Errorf("removed: %q, with %v and %v", got, h.names(h.conf), h.names(h.bin))
			}
		})
	}
}

// TestInstallerBringsSettingsUpToDate: the backup stays that of before the plugin came, and a
// program that is torn is replaced.
func TestInstallerBringsSettingsUpToDate(t *testing.T) {
	h := newHost(t)
	h.put("10-a.conflist", list)
	h.must(h.installer().install())
	path := filepath.Join(h.bin, Plugin)
	whole, err := os.ReadFile(path)
	h.must(err)
	torn := slices.Clone(whole)
	torn[len(torn)/2] ^= 1
	h.must(os.WriteFile(path, torn, 0o755))
	o := h.options()
	o.Members = map[string]any{"timeout": "7s"}
	i, err := New(t.Context(), o)
	h.must(err)
	h.must(i.install())
	if got := h.get("10-a.conflist"); strings.Count(got, Plugin) != 1 || !strings.Contains(got, `"7s"`) {
		t.Errorf("with other settings: %s", got)
	}
	if now, err := os.ReadFile(path); err != nil || !slices.Equal(now, whole) {
		t.Errorf("the program is torn still: %v", err)
	}
	h.remove()
	if got := h.get("10-a.conflist"); got != list {
		t.Errorf("removed: %s", got)
	}
}

// TestInstallerLeavesNetworksOfPlugin: it installs the program, and only the
// plugin that owns the list changes it.
func TestInstallerLeavesNetworksOfPlugin(t *testing.T) {
	for file, text := range map[string]string{
		"10-a.conflist": `{"name": "pods", "plugins": [{"type": "sluice-cni", "dataplane": "vpp", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}`,
		"10-a.conf":     `{"name": "pods", "type": "sluice-cni", "dataplane": "vpp", "ipam": {"type": "host-local"}}`,
	} {
		h := newHost(t)
		h.put(file, text)
		h.put("20-b.conflist", list) // no runtime takes it
		h.must(h.installer().install())
		if h.get(file) != text || h.get("20-b.conflist") != list || len(h.names(h.bin)) != 1 {
			t.Errorf("%s is %s, among %v; programs are %v", file, h.get(file), h.names(h.conf), h.names(h.bin))
		}
		if done := h.remove(); h.get(file) != text || len(h.names(h.bin)) != 1 || !strings.Contains(strings.Join(done, "\n"), "left "+filepath.Join(h.conf, file)) {
			t.Errorf("removed: %q, programs are %v", done, h.names(h.bin))
		}
		h.must(os.Remove(filepath.Join(h.conf, file)))
		if h.remove(); len(h.names(h.bin)) != 0 {
			t.Errorf("without the list there are %v", h.names(h.bin))
		}
	}
}

// TestInstallerTakesSinglePluginFromFile has another installer write it while its list is made.
func TestInstallerTakesSinglePluginFromFile(t *testing.T) {
	h := newHost(t)
	h.put("10-a.conf", single)
	h.must(h.installer().copyProgram())
	theirs := strings.ReplaceAll(single, "1400", "1500")
	i, steps := h.installer(), 0
	i.step = func() {
		if steps++; steps == 2 { // the list is there
			h.put("10-a.conf", theirs)
		}
	}
	if err := i.install(); !errors.Is(err, errChanged) || h.get("10-a.conf") != theirs {
		t.Errorf("%v, and there is %v", err, h.names(h.conf))
	}
	h.must(i.install())
	if got := h.get("10-a.conflist"); !strings.Contains(got, "1500") || !strings.Contains(got, Plugin) {
		t.Errorf("the list is %s", got)
	}
}

// TestInstallerLeavesUnreadableFiles: the error names the file, and nothing changes.
func TestInstallerLeavesUnreadableFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"half of it":       {list[:50], "not a JSON object"},
		"a list":           {`[1]`, "not a JSON object"},
		"nothing":          {"", "not a JSON object"},
		"no name":          {`{"plugins": [{"type": "a"}]}`, "name is missing"},
		"no plugins":       {`{"name": "n", "plugins": []}`, "plugins is not a list"},
		"plugins of text":  {`{"name": "n", "plugins": "x"}`, "plugins is not a list"},
		"a plugin of text": {`{"name": "n", "plugins": ["x"]}`, "plugin 1 has no type"},
		"a type of number": {`{"name": "n", "type": 1}`, "plugin 1 has no type"},
		"deep":             {strings.Repeat(`{"a":`, 1<<15), "not a JSON object"},
		"huge":             {`{"name": "` + strings.Repeat("x", 1<<20) + `"}`, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.put("10-a.conflist", c.text)
			i := h.installer()
			isLeft := func(err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), "10-a.conflist: ") || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if h.get("10-a.conflist") != c.text {
					t.Error("it was changed")
				}
			}
			isLeft(i.install())
			h.put("20-b.conflist", list) // the runtime may take it
			isLeft(i.install())
			if !strings.Contains(h.get("20-b.conflist"), Plugin) {
				t.Error("the one that can be read has no plugin")
			}
		})
	}
	t.Run("no regular file", func(t *testing.T) {
		h := newHost(t)
		h.must(os.Symlink("/etc/passwd", filepath.Join(h.conf, "a.conf")))
		h.must(unix.Mkfifo(filepath.Join(h.conf, "b.conf"), 0o600))
		h.must(os.Mkdir(filepath.Join(h.conf, "c.conf"), 0o700))
		err := h.installer().install()
		for _, want := range []string{"a.conf: it is a symbolic link", "b.conf: it is not a regular file", "c.conf: it is not a regular file", "names a network of pods yet"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
	t.Run("a list of somebody else", func(t *testing.T) {
		h := newHost(t)
		h.put("10-a.conf", single)
		h.put("10-a.conflist", list)
		if err := h.installer().install(); err == nil || !strings.Contains(err.Error(), "10-a.conflist: the file exists and does not belong to Sluice") {
			t.Error(err)
		}
		if h.get("10-a.conf") != single || h.get("10-a.conflist") != list {
			t.Error("it was changed")
		}
	})
}

// TestInstallerRefusesMembersThatPluginRefuses asks the real plugin.
func TestInstallerRefusesMembersThatPluginRefuses(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		members map[string]any
		want    string
	}{
		{map[string]any{"timeout": "soon"}, `invalid timeout "soon"`},
		{map[string]any{"agentAbsent": "fail"}, ""}, // no agent answers, which is no mistake
	} {
		o := h.options()
		o.Members = c.members
		if _, err := New(t.Context(), o); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v", c.members, err)
		}
	}
	o := h.options()
	o.Program = filepath.Join(h.bin, "none")
	if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), "bin/none") {
		t.Error(err)
	}
}

// start runs an installer until the test ends, or stop is called.
func (h *host) start(i *Installer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- i.Run(ctx) }()
	var once atomic.Bool
	stop = func() {
		if once.CompareAndSwap(false, true) {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				h.Error(err)
			}
		}
	}
	h.Cleanup(stop)
	return stop
}

// TestInstallerKeepsConcurrentWrites has another installer write its list 200 times, in turns
// at once and by a new file. At every moment there is a whole configuration, but for what the other
// one itself tears, and in the end there is its last one with the plugin.
func TestInstallerKeepsConcurrentWrites(t *testing.T) {
	h := newHost(t)
	path := filepath.Join(h.conf, "10-a.conflist")
	text := func(n int) []byte {
		return []byte(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "turn": %d, "plugins": [{"type": "bridge"}]}`, n))
	}
	h.must(os.WriteFile(path, text(0), 0o600))
	h.start(h.installer())
	for n := 1; n <= 200; n++ {
		h.must(os.WriteFile(path+".other", text(n), 0o600))
		h.must(os.Rename(path+".other", path))
		if types, err := h.types(); err != nil || types[0] != "bridge" {
			t.Fatalf("%v: %v", types, err)
		}
		if n%10 == 0 {
			programs.Eventually(t, func() error {
				if _, err := h.types(); err != nil {
					t.Fatal(err)
				}
				if got := h.get("10-a.conflist"); !strings.Contains(got, fmt.Sprintf(`"turn": %d`, n)) || !strings.Contains(got, Plugin) {
					return fmt.Errorf("turn %d: %s", n, got)
				}
				return nil
			})
		}
	}
	h.must(os.Remove(path)) // for a moment
	programs.Eventually(t, func() error {
		if len(h.names(h.conf)) > 1 {
			return fmt.Errorf("there are %v", h.names(h.conf))
		}
		return nil
	})
	h.must(os.WriteFile(path, text(-1), 0o600))
	h.must(os.Remove(filepath.Join(h.bin, Plugin)))
	programs.Eventually(t, func() error {
		types, err := h.types()
		if err == nil && (len(types) != 2 || len(h.names(h.bin)) != 1) {
			err = fmt.Errorf("plugins are %v, programs %v", types, h.names(h.bin))
		}
		return err
	})
}

// TestReplaceRestoresConcurrentWrite: the file is not the one that was read.
func TestReplaceRestoresConcurrentWrite(t *testing.T) {
	h := newHost(t)
	h.put("a", "theirs")
	path := filepath.Join(h.conf, "a")
	if err := replace(path, []byte("old"), []byte("ours")); !errors.Is(err, errChanged) || h.get("a") != "theirs" {
		t.Errorf("%v: %s", err, h.get("a"))
	}
	h.must(os.Remove(path))
	if err := replace(path, []byte("old"), []byte("ours")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if names := h.names(h.conf); len(names) != 0 {
		t.Errorf("left are %v", names)
	}
}

func TestInstallerRunsOnce(t *testing.T) {
	h := newHost(t)
	h.put("10-a.conflist", list)
	held, err := lock(h.conf)
	h.must(err)
	if l, err := lock(h.conf); err == nil {
		t.Fatalf("two processes hold %s", l.Name())
	}
	h.must(held.Close())
	first, second := h.installer(), h.installer()
	stop := h.start(first)
	programs.Eventually(t, func() error {
		_, err := os.Stat(filepath.Join(h.bin, Plugin))
		return err
	})
	h.start(second)
	programs.Eventually(t, func() error {
		if p := second.Problem(); !strings.Contains(p, "another process installs") {
			return errors.New(p)
		}
		return nil
	})
	if _, err := Remove(h.bin, h.conf, h.results); err == nil || !strings.Contains(err.Error(), "another process installs") {
		t.Error(err)
	}
	stop()
	programs.Eventually(t, func() error {
		if p := second.Problem(); p != "" {
			return errors.New(p)
		}
		return nil
	})
}

func TestRemoveLeavesProgramForItsPods(t *testing.T) {
	h := newHost(t)
	h.put("10-a.conflist", list)
	h.must(h.installer().install())
	cached := filepath.Join(h.results, "pods-c-eth0")
	// libcni keeps the list that a pod was made with in base64.
	h.must(os.WriteFile(cached, []byte(`{"kind": "cniCacheV1", "config": "eyJwbHVnaW5zIjpbeyJ0eXBlIjoic2x1aWNlLWNuaSJ9XX0="}`), 0o600))
	if done := h.remove(); !strings.Contains(strings.Join(done, "\n"), "1 pods were made with it") || len(h.names(h.bin)) != 1 {
		t.Errorf("%q, and there are %v", done, h.names(h.bin))
	}
	h.wantTypes("bridge", "portmap")
	h.must(os.Remove(cached))
	if done := h.remove(); len(done) != 1 || len(h.names(h.bin)) != 0 {
		t.Errorf("%q, and there are %v", done, h.names(h.bin))
	}
	if done := h.remove(); len(done) != 0 {
		t.Errorf("a third time: %q", done)
	}
}

// TestRemoveLeavesConfiguration that is gone for a moment.
func TestRemoveLeavesConfiguration(t *testing.T) {
	h := newHost(t)
	h.put("10-a.conflist", list)
	h.must(h.installer().install())
	h.must(os.Remove(filepath.Join(h.conf, "10-a.conflist")))
	h.remove()
	if h.get("10-a.conflist") != list || len(h.names(h.conf)) != 1 {
		t.Errorf("%s among %v", h.get("10-a.conflist"), h.names(h.conf))
	}
	h.put("20-b.conf", `{"name": "n", "type": "sluice-cni"}`)
	if _, err := Remove(h.bin, h.conf, h.results); err == nil || !strings.Contains(err.Error(), "20-b.conf: it has no other plugin") {
		t.Error(err)
	}
	if done, err := Remove(h.bin, filepath.Join(h.conf, "none"), ""); len(done) != 0 || err != nil {
		t.Errorf("%v: %v", done, err)
	}
}

// TestInstallerSurvivesKill kills an installer between any two of its steps. The folder has a
// whole configuration then, and the next one finishes.
func TestInstallerSurvivesKill(t *testing.T) {
	for file, text := range map[string]string{"10-a.conflist": list, "10-a.conf": single} {
		for at := 1; ; at++ {
			h := newHost(t)
			h.put(file, text)
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "SLUICE_TEST_INSTALL="+filepath.Dir(h.conf), "SLUICE_TEST_PROGRAM="+program, fmt.Sprint("SLUICE_TEST_STEP=", at))
			out, err := cmd.CombinedOutput()
			if err == nil {
				if at < 3 {
					t.Errorf("there are %d steps only", at)
				}
				break
			}
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("step %d: %v: %s", at, err, out)
			}
			if types, err := h.types(); err != nil || !strings.Contains(text, `"`+types[0]+`"`) {
				t.Fatalf("%s, killed at step %d: %v: %v among %v", file, at, types, err, h.names(h.conf))
			}
			stop := h.start(h.installer())
			programs.Eventually(t, func() error {
				types, err := h.types()
				if err == nil && !slices.Contains(types, Plugin) {
					err = fmt.Errorf("plugins are %v", types)
				}
				return err
			})
			stop()
			h.remove()
			if h.get(file) != text || len(h.names(h.conf)) != 1 || len(h.names(h.bin)) != 0 {
				t.Errorf("%s, killed at step %d: %s among %v, and %v", file, at, h.get(file), h.names(h.conf), h.names(h.bin))
			}
		}
	}
}

// crash installs and dies at a step.
func crash(folder string) {
	var at, step int
	_, _ = fmt.Sscan(os.Getenv("SLUICE_TEST_STEP"), &at)
	i, err := New(context.Background(), Options{
		Program: os.Getenv("SLUICE_TEST_PROGRAM"), BinDir: filepath.Join(folder, "bin"), ConfDir: filepath.Join(folder, "net.d"),
		step: func() {
			if step++; step == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		},
	})
	if err == nil {
		err = i.install()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
