package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// hangsUp closes the connection without an answer, as a handler that panics does.
func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// stops closes the connection in the middle of an answer.
func stops(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("[")) // a client that is gone fails the test itself
}

// TestClientSaysThatTheAgentFailedAndWhereToLook, when it gives no answer, or part of one, or
// words of its own.
func TestClientSaysThatTheAgentFailedAndWhereToLook(t *testing.T) {
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
		for _, args := range [][]string{{"explain", "a/b", "c/d:80"}, {"get", "pods"}, {"watch", "verdicts", "--count", "1", "-o", "json"}} {
			code, out, errOut := sluicectl(socket, "", args...)
			if code != ExitError || out != "" || !strings.Contains(errOut, tc.want) || !strings.HasPrefix(errOut, "sluicectl: ") || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%s, %s: exit code %d, %q, %q, want %q", name, args[0], code, out, errOut, tc.want)
			}
		}
	}
}

// TestClientReadsOnlyTheBeginningOfAnError has an agent whose error is of a quarter of a gigabyte.
func TestClientReadsOnlyTheBeginningOfAnError(t *testing.T) {
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
