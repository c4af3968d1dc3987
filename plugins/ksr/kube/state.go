package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Sink receives the state of the API server. It must not block.
type Sink interface {
	Put(value proto.Message) error
	Delete(id model.ID)
	// Leave leaves the objects of a kind as they are, wherever they came from, until Replace. It
	// changes nothing after Replace.
	Leave(kind model.Kind)
	// Keep leaves an object as it is. If no version of it is known, it is the value instead, or
	// none for nil.
	Keep(id model.ID, instead proto.Message) error
	// Replace makes the values the complete state of a kind, except that the objects in keep stay
	// as they are, as with Keep.
	Replace(kind model.Kind, values []proto.Message, keep map[model.ID]proto.Message) error
}

// Config of a Source. API, Sink and Log are needed.
type Config struct {
	API  *rest.Config
	Sink Sink
	Log  *slog.Logger
	// OnProblem is called with each problem of an object, once while it stays the same. Several
	// goroutines call it; it must not block. It may be nil.
	OnProblem func(api.Problem)
	// OnEvent is called for every received object. It may be nil.
	OnEvent func(model.Kind)
	// Probe is the interval at which the API server is asked whether it answers, and which kinds of
	// cluster-scoped policies it serves; zero means 3 s.
	Probe time.Duration
}

// Source follows one cluster. Run may be called once.
type Source struct {
	cfg     Config
	clients clients
	asks    func(context.Context) (string, error) // identifies the cluster: Cluster
	now     func() time.Time

	mu       sync.Mutex
	kinds    map[model.Kind]*KindStatus
	answered time.Time // when the API server last answered
	cluster  string    // the served cluster; empty until known
	problems map[model.ID][]api.Problem
	policies clusterPolicies
}

// KindStatus is the status of following one kind.
type KindStatus struct {
	Served bool // false: the API server does not have the kind, so there are no objects of it
	Synced bool // all objects of the kind were received once
	// Error is the error of the last list or watch; empty once one succeeds.
	Error string
}

// Status is the status of following a cluster.
type Status struct {
	Kinds map[model.Kind]KindStatus
	// Answered is when the API server last answered; zero before the first answer.
	Answered time.Time
	Problems int // number of objects with problems
}

// Status returns the current status.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{Kinds: map[model.Kind]KindStatus{}, Answered: s.answered, Problems: len(s.problems)}
	for kind, k := range s.kinds {
		out.Kinds[kind] = *k
	}
	return out
}

func (s *Source) updateStatus(kind model.Kind, change func(*KindStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.kinds[kind])
}

func (s *Source) hasAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = time.Now()
}

// heard records the result of a list or a watch.
func (s *Source) heard(kind model.Kind, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.kinds[kind].Error = ""
	case !errors.Is(err, context.Canceled):
		s.kinds[kind].Error = plain(err)
	}
}

// plain returns the text of an error without the requested address, which is less informative than
// the kind.
func plain(err error) string {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		return asked.Err.Error()
	}
	return err.Error()
}

// report reports the problems of an object, unless they were reported before.
func (s *Source) report(id model.ID, problems []api.Problem) {
	s.mu.Lock()
	before := s.problems[id]
	if len(problems) == 0 {
		delete(s.problems, id)
	} else {
		s.problems[id] = problems
	}
	s.mu.Unlock()
	if slices.Equal(before, problems) {
		return
	}
	for _, p := range problems {
		s.cfg.Log.Warn("object is partially reflected", "object", p.Object, "field", p.Field, "reason", p.Reason)
		if s.cfg.OnProblem != nil {
			s.cfg.OnProblem(p)
		}
	}
}

// forget drops the problems of objects of a kind that no longer exist.
func (s *Source) forget(kind model.Kind, exist map[model.ID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.problems {
		if id.Kind == kind && !exist[id] {
			delete(s.problems, id)
		}
	}
}
