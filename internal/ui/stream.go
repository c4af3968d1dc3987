package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lib/serve"
)

// heartbeat is how often a stream without verdicts sends a comment, by which a client that has gone
// is noticed.
const heartbeat = 10 * time.Second

// errNoAgent is the error of a stream where the state is from files.
var errNoAgent = errors.New("the state is from files: no agent sees packets")

// verdicts streams verdicts as server-sent events until the client or the agent ends. A client that
// does not read is cut off.
func (h *handler) verdicts(w http.ResponseWriter, r *http.Request) {
	q, err := watchOf(r)
	if err == nil && h.Agent == nil {
		err = errNoAgent
	}
	if err != nil {
		fail(w, err)
		return
	}
	done, err := h.watching.wait(r.Context(), 0)
	if err != nil {
		fail(w, problem{http.StatusServiceUnavailable, errors.New("too many clients watch: close another page")})
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &stream{w: w, out: http.NewResponseController(w), patience: h.patience}
	var beats sync.WaitGroup
	defer beats.Wait()
	defer cancel()
	err = h.Agent.Watch(ctx, q, func() {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = s.send("retry: 2000\n\n")
		beats.Go(func() {
			for beat := h.tick(heartbeat); ; {
				select {
				case <-ctx.Done():
					return
				case <-beat:
					if s.send(": beat\n\n") != nil {
						cancel()
						return
					}
				}
			}
		})
	}, func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return s.send("data: " + string(b) + "\n\n")
	})
	if err == nil {
		return
	}
	if s.hasBegun() { // the status is written
		b, _ := json.Marshal(map[string]string{"error": err.Error()}) // a string can be encoded
		_ = s.send("data: " + string(b) + "\n\n")
		return
	}
	fail(w, err)
}

// stream writes events, from several goroutines.
type stream struct {
	mu       sync.Mutex
	w        http.ResponseWriter
	out      *http.ResponseController
	patience time.Duration
	begun    bool
}

func (s *stream) send(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	serve.Extend(s.w, s.patience)
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *stream) hasBegun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}
