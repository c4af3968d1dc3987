// Package ui serves a page on which people see who can talk to whom, and why. It is part of the
// binaries of the agent and of sluicectl, and loads nothing from elsewhere.
//
//	/ui/       the page: HTML, a style sheet and JavaScript modules, embedded
//	/ui/api/   what it asks
//
// # Invariants
//
//   - Nothing that it serves changes anything.
//   - Answers are for a client that knows the token, or that the transport identifies (a Unix
//     socket). The page itself holds no state and needs no token.
//   - A request of another site's page is refused, by its Host, its Origin and what the browser
//     says about it. No answer is for other sites.
//   - Texts of others are data: in JSON, and as text nodes of the page. The Content-Security-Policy
//     permits neither inline scripts nor inline styles, nor markup from strings.
//   - Comparisons, questions and streams are bounded in number and time.
package ui

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/view"
)

// Path is where the page is; all other paths of a handler begin with it.
const Path = "/ui/"

// Source has what the page shows. All functions may be called by several goroutines at once.
type Source struct {
	// Name says whose state it is, for people: "agent on node-1".
	Name string
	// State returns the state of the cluster. It is called at most once a second.
	State func(context.Context) (explain.Manifests, error)
	// Explain answers a question; nil: by the state alone.
	Explain func(context.Context, view.Question) ([]view.Explanation, error)
	// Agent is nil where there is none, and the state is from files.
	Agent Agent
	// Renderers are the dataplanes in which a preview is tried; none: the specification alone.
	Renderers []string
}

// Agent answers what only an agent knows.
type Agent interface {
	// Pods returns the pods that have a text in their names, of a namespace or of all.
	Pods(ctx context.Context, namespace, name string) ([]view.Pod, error)
	// Rules returns the installed rules of the tables of such pods.
	Rules(ctx context.Context, namespace, name string) ([]view.Rule, error)
	Status(ctx context.Context) (view.Status, error)
	Nodes(ctx context.Context) ([]view.NodeEnforcement, error)
	// Watch sends verdicts and, as the last value, possibly a view.WatchEnd until ctx ends. It
	// calls begun once it watches, and returns an error when it cannot.
	Watch(ctx context.Context, q view.Watch, begun func(), send func(any) error) error
}

//go:embed assets
var assets embed.FS

// Limits of what clients may have done at once.
const (
	streams     = 16 // watching clients
	questions   = 4  // answers that are computed
	comparisons = 1  // previews
)

// Time limits.
const (
	fresh        = time.Second      // how old a state may be
	previewTime  = 30 * time.Second // a comparison
	questionTime = 60 * time.Second
	waitTime     = 20 * time.Second // for a turn
)

// handler serves a page.
type handler struct {
	Source
	guard     Guard
	state     cache
	watching  turns
	computing turns
	comparing turns
	patience  time.Duration // for a client that does not read
	tick      func(time.Duration) <-chan time.Time
}

// Handler returns the handler of the page and of what it asks, below Path.
func Handler(s Source, g Guard) http.Handler {
	h := &handler{
		Source: s, guard: g, watching: newTurns(streams), computing: newTurns(questions), comparing: newTurns(comparisons),
		patience: 30 * time.Second, tick: time.Tick,
	}
	h.state.read = s.State
	mux := http.NewServeMux()
	mux.Handle(patternPage, pages())
	mux.Handle(patternVerdicts, g.private(http.HandlerFunc(h.verdicts)))
	for pattern, answer := range questionsOf {
		mux.Handle(pattern, g.private(h.answers(func(r *http.Request) (any, error) { return answer(h, r) })))
	}
	return g.public(mux)
}

// questionsOf are what the page asks, by patterns.
var questionsOf = map[string]func(*handler, *http.Request) (any, error){
	"GET " + Path + "api/about":    (*handler).about,
	"GET " + Path + "api/graph":    (*handler).graph,
	"GET " + Path + "api/matrix":   (*handler).matrix,
	"GET " + Path + "api/pods":     (*handler).pods,
	"GET " + Path + "api/pod":      (*handler).pod,
	"GET " + Path + "api/status":   (*handler).status,
	"POST " + Path + "api/explain": (*handler).explain,
	"POST " + Path + "api/preview": (*handler).preview,
}

const (
	patternPage     = "GET " + Path
	patternVerdicts = "GET " + Path + "api/verdicts"
)

// Patterns returns the patterns of all requests that a handler answers, sorted.
func Patterns() []string {
	all := append(slices.Collect(maps.Keys(questionsOf)), patternPage, patternVerdicts)
	slices.Sort(all)
	return all
}

// errBusy is the error of a request for which there was no turn.
var errBusy = errors.New("too many requests: try again in a moment")

// turns bounds how many do something at once.
type turns struct{ *semaphore.Weighted }

func newTurns(most int64) turns { return turns{semaphore.NewWeighted(most)} }

// wait waits for a turn, and returns how to end it.
func (t turns) wait(ctx context.Context, most time.Duration) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if !t.TryAcquire(1) && t.Acquire(ctx, 1) != nil {
		return nil, errBusy
	}
	return func() { t.Release(1) }, nil
}

// problem is an error with a status.
type problem struct {
	status int
	error
}

func (p problem) Unwrap() error { return p.error }

// answers serves what a function returns, as JSON, when there is a turn.
func (h *handler) answers(get func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve.Extend(w, waitTime+questionTime)
		done, err := h.computing.wait(r.Context(), waitTime)
		if err != nil {
			fail(w, err)
			return
		}
		defer done()
		ctx, cancel := context.WithTimeout(r.Context(), questionTime)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
		v, err := get(r.WithContext(ctx))
		if err == nil {
			err = writeJSON(w, v)
		}
		if err != nil {
			fail(w, err)
		}
	})
}

// maxQuestion bounds a request, in bytes: the manifests of a preview.
const maxQuestion = 4 << 20

// fail answers with an error in words.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	if p, ok := errors.AsType[problem](err); ok {
		status = p.status
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		status = http.StatusRequestEntityTooLarge
	}
	if errors.Is(err, errBusy) {
		status = http.StatusServiceUnavailable
	}
	serve.Say(w, cmp.Or(status, http.StatusInternalServerError), err.Error()+"\n")
}
