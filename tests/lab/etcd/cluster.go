package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// Options of a Cluster.
type Options struct {
	Members int // 1 when zero
	// Authority signs the certificates of the members and of clients; nil without TLS.
	Authority *Authority
	Quota     int64  // of a member's database in bytes; 0 for etcd's own
	Sync      bool   // to disk, as in production; tests that count nothing do without
	Dir       string // in which each member has its data; empty for one of the test
	// Bcrypt is how hard it is to check a password: 1 more takes twice as long; 0 for
	// etcd's own.
	Bcrypt uint
}

// Cluster is a cluster whose members are processes. One goroutine uses it at a time.
type Cluster struct {
	t       testing.TB
	members []*member
}

type member struct {
	settings settings
	process  *exec.Cmd
	stdin    io.Closer
}

// Start starts a cluster that ends with the test. Whether it serves is to be found
// out by a client.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	var all []string
	for i := range max(1, o.Members) {
		dir := o.Dir
		if dir == "" {
			dir = t.TempDir()
		}
		name := fmt.Sprintf("m%d", i)
		m := &member{settings: settings{
			Name: name, Dir: filepath.Join(dir, name), Client: programs.FreeAddress(t), Quota: o.Quota, Sync: o.Sync, Bcrypt: o.Bcrypt,
		}}
		if o.Authority != nil {
			m.settings.CA = o.Authority.CA
			m.settings.Cert, m.settings.Key = o.Authority.Issue(t, m.settings.Name)
		}
		all = append(all, m.settings.Name+"=http://"+programs.FreeAddress(t))
		c.members = append(c.members, m)
	}
	for i, m := range c.members {
		m.settings.Cluster = strings.Join(all, ",")
		c.Restart(i)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
	})
	return c
}

// Endpoints returns where clients reach the members.
func (c *Cluster) Endpoints() (out []string) {
	for _, m := range c.members {
		out = append(out, m.settings.Client)
	}
	return out
}

// Kill ends a member without giving it a chance to say so. One that does not run stays
// so.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	m := c.members[i]
	if m.process == nil {
		return
	}
	if err := m.process.Process.Kill(); err != nil {
		c.t.Error(err)
	}
	_ = m.process.Wait() // the error reports that it was killed
	_ = m.stdin.Close()  // the process no longer reads it
	m.process = nil
}

// Restart starts a member that does not run, over the data that it had.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	m := c.members[i]
	text, err := json.Marshal(m.settings)
	if err != nil {
		c.t.Fatal(err)
	}
	m.process = exec.Command(os.Args[0])
	m.process.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.process.Stderr = os.Stderr
	if m.stdin, err = m.process.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := m.process.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// PID returns the process of a member that runs.
func (c *Cluster) PID(i int) int { return c.members[i].process.Process.Pid }

// watches is the metric of a member that counts the watches it serves.
var watches = regexp.MustCompile(`(?m)^etcd_debugging_mvcc_watcher_total (\S+)$`)

// Watches asks a member how many watches it serves.
func (c *Cluster) Watches(t testing.TB, i int) int {
	t.Helper()
	resp, err := http.Get("http://" + c.members[i].settings.Client + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	m := watches.FindSubmatch(body)
	if m == nil {
		t.Fatalf("no watches in %s", body)
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// Save stops all members, copies their data, and starts them again. What it returns
// puts that data back, as the restore of a snapshot does.
func (c *Cluster) Save() (restore func()) {
	c.t.Helper()
	saved := make([]string, len(c.members))
	c.stopped(func(i int, dir string) error {
		saved[i] = filepath.Join(c.t.TempDir(), "saved")
		return os.CopyFS(saved[i], os.DirFS(dir))
	})
	return func() {
		c.t.Helper()
		c.stopped(func(i int, dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(saved[i]))
		})
	}
}

// Wipe replaces all members by new ones with the same addresses and no data.
func (c *Cluster) Wipe() {
	c.t.Helper()
	c.stopped(func(_ int, dir string) error { return os.RemoveAll(dir) })
}

// stopped does something to the data of every member while none runs.
func (c *Cluster) stopped(do func(i int, dir string) error) {
	c.t.Helper()
	for i := range c.members {
		c.Kill(i)
	}
	for i, m := range c.members {
		if err := do(i, m.settings.Dir); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range c.members {
		c.Restart(i)
	}
}
