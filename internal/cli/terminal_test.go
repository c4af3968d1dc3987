package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/view"
)

// terminal opens a pseudo-terminal of so many columns, and returns its end for a program and what
// ends it and returns what was written.
func terminal(t *testing.T, columns int) (tty *os.File, written func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() {
		out, part := []byte{}, make([]byte, 4096)
		for !bytes.HasSuffix(out, []byte(endOfText)) {
			n, err := master.Read(part)
			if out = append(out, part[:n]...); err != nil {
				break
			}
		}
		done <- string(out)
	}()
	return tty, func() string {
		_, _ = tty.WriteString(endOfText) // a closed terminal loses what was not read yet
		out := strings.TrimSuffix(<-done, endOfText)
		_, _ = tty.Close(), master.Close()
		return strings.ReplaceAll(out, "\r\n", "\n")
	}
}

// endOfText ends what is read of a terminal.
const endOfText = "\x03"

// onTerminal runs a command line as a person sees it.
func onTerminal(t *testing.T, columns int, line string) string {
	t.Helper()
	tty, written := terminal(t, columns)
	Run(strings.Fields(line), strings.NewReader(""), tty, tty)
	return written()
}

// shown are what people see on a terminal of the shop, and of a cluster of a thousand pods.
var shown = map[string][]string{
	"shop": {
		"get pods", "get pods -n data", "get policies", "get rules shop/web-0", "get tables", "get sets", "get nodes", "describe pod shop/web-0",
		"describe policy shop/checkout", "explain shop/web-0 data/postgres-0:5432", "explain shop/web-0 shop/cart-0:http",
		"explain shop/batch-0 data/search-0:5432", "explain shop/checkout-0 svc/shop/backend:http",
		"matrix", "matrix -n data", "matrix --from shop/web,internet --to data,platform", "matrix --from shop --to data --open",
	},
	"generated": {"get pods ns-0/pod-114 ns-0/pod-137", "get policies -n ns-3", "get rules ns-0/pod-114", "describe pod ns-0/pod-137",
		"matrix", "matrix --from ns-0 --to ns-1"},
	"audited": {"get audit -n ns-7", "get audit -n ns-0 -l app=web", "describe policy ns-7/np-44"},
}

// TestTerminalOutputFitsWidth: golden files of terminals of three widths; no line is wider.
func TestTerminalOutputFitsWidth(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	for name, lines := range shown {
		for _, columns := range []int{80, 120, 200} {
			t.Run(fmt.Sprintf("%s-%d", name, columns), func(t *testing.T) {
				socket := map[string]func(*testing.T) string{"shop": realShop, "generated": realCluster, "audited": auditedCluster}[name](t)
				t.Setenv(view.SocketEnv, socket)
				var b strings.Builder
				for _, line := range lines {
					out := onTerminal(t, columns, line)
					_, _ = fmt.Fprintf(&b, "$ sluicectl %s\n%s", line, out) // a strings.Builder accepts every write
					for l := range strings.Lines(out) {
						if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > columns {
							t.Errorf("%s: a line has %d columns: %s", line, n, l)
						}
					}
				}
				golden(t, filepath.Join("terminal", fmt.Sprintf("%s-%d", name, columns)), b.String())
			})
		}
	}
}

// TestTerminalOutputHasColours, and what is asked for as wide is whole.
func TestTerminalOutputHasColours(t *testing.T) {
	t.Setenv(view.SocketEnv, realShop(t))
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if out := onTerminal(t, 80, "get pods"); !strings.Contains(out, "\x1b[2mPOD\x1b[0m") || !strings.Contains(out, "not shown: LABELS") {
		t.Errorf("the terminal got %q", out)
	}
	if out := onTerminal(t, 80, "get pods -o wide"); !strings.Contains(out, "allow-dns,allow-monitoring,default-deny,web") || strings.Contains(out, "not shown") {
		t.Errorf("the terminal got %q", out)
	}
}

// runVariable makes the test binary run as sluicectl, with its value as the command line.
const runVariable = "SLUICE_TEST_RUN"

// TestTerminalOutputInTmux: what a person sees in tmux is what a pseudo-terminal shows.
func TestTerminalOutputInTmux(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("tmux is not installed")
	}
	socket, line := realShop(t), "get pods"
	t.Setenv(view.SocketEnv, socket)
	t.Setenv("NO_COLOR", "1")
	server := ""
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(tmux, append([]string{"-S", server, "-f", os.DevNull}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, columns := range []int{80, 120, 200} {
		server = filepath.Join(filepath.Dir(socket), fmt.Sprint("tmux", columns)) // one that ends is not yet gone
		run("new-session", "-d", "-x", strconv.Itoa(columns), "-y", "40", "-e", runVariable+"="+line, "-e", "NO_COLOR=1", "-e", view.SocketEnv+"="+socket,
			os.Args[0], ";", "set-option", "remain-on-exit", "on")
		for deadline := time.Now().Add(30 * time.Second); strings.TrimSpace(run("display-message", "-p", "#{pane_dead}")) != "1"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("sluicectl does not end: %s", run("capture-pane", "-p"))
			}
		}
		screen, _, _ := strings.Cut(run("capture-pane", "-p", "-S", "-"), "\nPane is dead")
		run("kill-server")
		if d := cmp.Diff(strings.TrimSpace(onTerminal(t, columns, line)), strings.TrimSpace(screen)); d != "" {
			t.Errorf("%d columns (-pseudo-terminal +tmux):\n%s", columns, d)
		}
	}
}
