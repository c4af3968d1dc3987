package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/lib/scratch"
	"github.com/sluice-net/sluice/internal/view"
)

// socketEnv is where the programs look for the debug API.
const socketEnv = "SLUICE_API_SOCKET"

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", "script"),
		Setup: prepare,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready": scriptReady, "api": scriptAPI, "until": scriptUntil, "absent": scriptAbsent, "status": scriptStatus,
			"terminate": scriptTerminate, "etcd": scriptEtcd, "store": scriptStore,
		},
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("SLUICE_UPDATE") != "",
	})
}

// prepare gives a script the programs, the examples and a socket of its own.
func prepare(env *testscript.Env) error {
	dir, err := scratch.New("sl-")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = dir.Remove() }) // what is left is in the temporary directory
	examples, err := filepath.Abs(filepath.Join("..", "..", "..", "docs", "examples"))
	if err != nil {
		return err
	}
	env.Setenv("PATH", filepath.Dir(program("sluicectl"))+string(filepath.ListSeparator)+env.Getenv("PATH"))
	env.Setenv(socketEnv, filepath.Join(dir.Path, "agent.sock"))
	env.Setenv("EXAMPLES", examples)
	env.Values[storesKey{}] = map[string]*embedded.Server{}
	return copyShop(filepath.Join(env.WorkDir, "shop"))
}

// storesKey finds the stores that a script has started.
type storesKey struct{}

func stores(ts *testscript.TestScript) map[string]*embedded.Server {
	return ts.Value(storesKey{}).(map[string]*embedded.Server)
}

// poll calls until there is no error; the error describes what is still missing.
func poll(satisfied func() error) error { return pollFor(patience, satisfied) }

// isReady is nil when the agent behind a socket enforces something that was in the
// store: the first revision of an etcd is that of an empty one.
func isReady(socket string) error {
	status, body, err := ask(socket, "/readyz")
	if err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("not ready: %s", body))
	}
	_, body, err = ask(socket, "/v1/status")
	if err != nil {
		return err
	}
	var s view.Status
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("status: %w: %s", err, body)
	}
	if s.Revision < 2 || s.Revision != s.Seen {
		return fmt.Errorf("revision %d of %d is enforced", s.Revision, s.Seen)
	}
	return nil
}

func scriptReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: ready")
	}
	ts.Check(poll(func() error { return isReady(ts.Getenv(socketEnv)) }))
}

func scriptAPI(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: api PATH")
	}
	_, body, err := ask(ts.Getenv(socketEnv), args[0])
	ts.Check(err)
	_, err = ts.Stdout().Write(body)
	ts.Check(err)
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP CMD ARG...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	path := args[1]
	if _, err := os.Stat(program(path)); err == nil {
		path = program(path)
	}
	var out []byte
	ts.Check(poll(func() error {
		cmd := exec.Command(path, args[2:]...)
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = append(os.Environ(), socketEnv+"="+ts.Getenv(socketEnv))
		out, _ = cmd.CombinedOutput() // the exit code may be that of a denied flow
		if !want.Match(out) {
			return fmt.Errorf("no match for %q in:\n%s", args[0], out)
		}
		return nil
	}))
	_, err = ts.Stdout().Write(out)
	ts.Check(err)
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE CMD ARG...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func scriptAbsent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: absent PATH")
	}
	ts.Check(poll(func() error {
		if _, err := os.Lstat(ts.MkAbs(args[0])); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there", args[0])
		}
		return nil
	}))
}

func scriptTerminate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: terminate")
	}
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	}
}

func scriptEtcd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: etcd NAME")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := embedded.Start(ctx, embedded.Config{ClientURL: "http://127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Close()) })
	stores(ts)[args[0]] = s
	ts.Setenv(args[0], s.Endpoints()[0])
}

func scriptStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || stores(ts)[args[0]] == nil {
		ts.Fatalf("usage: store NAME, of an etcd that was started")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	entries, _, err := stores(ts)[args[0]].Client().List(ctx, model.Root(model.DefaultPrefix))
	ts.Check(err)
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintln(&b, e.Key)
	}
	_, err = ts.Stdout().Write(b.Bytes())
	ts.Check(err)
}
