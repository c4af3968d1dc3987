package cli

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/cli/program"
)

// hangsUp closes the connection without an answer, as a handler that panics does.
func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// stops closes the connection in the middle of an answer.
func stops(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("[")) // a client that is gone fails the test itself
}

// TestClientErrorNamesAgentLog, when it gives no answer, or part of one, or
// words of its own.
func TestClientErrorNamesAgentLog(t *testing.T) {
	const log = `see its log; "sluice-agent" on this node`
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no answer":        {hangsUp, "closed the connection before it had answered: it failed, or has ended (" + log + "): "},
		"half an answer":   {stops, "closed the connection before it had answered: it failed, or has ended (" + log + "): unexpected EOF\n"},
		"500":              {fails(http.StatusInternalServerError, "nil pointer in explain"), "sluicectl: the agent failed while answering (" + log + "): nil pointer in explain\n"},
		"500, no words":    {fails(http.StatusInternalServerError, ""), "sluicectl: the agent failed while answering (" + log + "): 500 Internal Server Error\n"},
		"422":              {fails(http.StatusUnprocessableEntity, "pod a/b is not known"), "sluicectl: agent: pod a/b is not known\n"},
		"400 and no words": {fails(http.StatusBadRequest, ""), "sluicectl: agent: 400 Bad Request\n"},
	} {
		socket := agent(t, map[string]http.HandlerFunc{"POST /v1/explain": tc.answer, "GET /v1/pods": tc.answer, "POST /v1/verdicts": tc.answer})
		for _, args := range [][]string{{"explain", "a/b", "c/d:80"}, {"get", "pods"}, {"watch", "verdicts", "--follow=false", "-o", "json"}} {
			code, out, errOut := sluicectl(socket, "", args...)
			if code != ExitError || out != "" || !strings.Contains(errOut, tc.want) || !strings.HasPrefix(errOut, "sluicectl: ") || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%s, %s: exit code %d, %q, %q, want %q", name, args[0], code, out, errOut, tc.want)
			}
		}
	}
}

// TestClientBoundsErrorText has an agent whose error is of a quarter of a gigabyte.
func TestClientBoundsErrorText(t *testing.T) {
	wrote := make(chan error, 1)
	socket := agent(t, map[string]http.HandlerFunc{"GET /v1/check": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		err := error(nil)
		for i := 0; err == nil && i < 4096; i++ {
			_, err = io.WriteString(w, strings.Repeat("x", 1<<16))
		}
		wrote <- err
	}})
	code, out, errOut := sluicectl(socket, "", "check")
	if code != ExitError || out != "" || !strings.HasPrefix(errOut, "sluicectl: agent: xxx") {
		t.Errorf("exit code %d, %d bytes, %.100q", code, len(errOut), errOut)
	}
	if err := <-wrote; err == nil {
		t.Error("all of it was read")
	}
}

// hangs takes a question, and never answers.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the end of the client is seen behind the question only
	<-r.Context().Done()
}

// halts answers in part, and then no more.
func halts(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush() // a client that is gone fails the test itself
	hangs(w, r)
}

// TestClientTimesOut for an agent that does not answer, or stops answering.
func TestClientTimesOut(t *testing.T) {
	const flow = "a/b c/d:80"
	for name, answer := range map[string]http.HandlerFunc{"no answer": hangs, "half an answer": halts} {
		socket := agent(t, map[string]http.HandlerFunc{"/": answer})
		for _, line := range []string{
			"get pods", "get pods -w", "get pod a/b", "get status", "describe pod a/b", "explain " + flow, "inject " + flow,
			"check", "matrix", "apply -f ../../docs/examples/shop", "diff -f ../../docs/examples/shop",
		} {
			code, out, errOut := sluicectl(socket, "", append(strings.Fields(line), "--request-timeout", "20ms")...)
			want := "sluicectl: the agent on " + socket + " did not answer within 20ms ("
			if code != ExitError || out != "" || !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%s, %s: exit code %d, %q, %q, want %q", name, line, code, out, errOut, want)
			}
		}
	}
}

// TestClientHasTimeoutByDefault: commands that take long have other bounds, or none.
func TestClientHasTimeoutByDefault(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"get status": answerTime, "check": checkTime, "matrix": 0, "bundle " + filepath.Join(t.TempDir(), "b.tgz"): partTime,
		"check --request-timeout 1s": time.Second, "matrix --request-timeout 1s": time.Second, "get status --request-timeout 0": 0,
	} {
		o := &options{output: formatTable}
		cmd := o.command(program.Own, io.Discard)
		cmd.SetArgs(append(strings.Fields(line), "--socket", "/nowhere"))
		if err := cmd.Execute(); err == nil || o.patience != want {
			t.Errorf("%s: waits %s, want %s; %v", line, o.patience, want, err)
		}
	}
}
