package debugapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/view"
)

// Routes are the handlers of an API, by their patterns.
type Routes map[string]http.HandlerFunc

// Mux returns the handler of the routes.
func (all Routes) Mux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, handler := range all {
		mux.HandleFunc(pattern, handler)
	}
	return mux
}

// list serves a list with the filters of its query.
func list[T any](get func(context.Context, Filter) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		ctx, stale := remarked(r.Context())
		v, err := get(ctx, Filter{namespace: q.Get("namespace"), name: q.Get("name"), local: q.Has("local"), from: q["from"], to: q["to"]})
		remark(w, *stale)
		answer(w, v, err)
	}
}

// ask serves the answer to a request in JSON.
func ask[Q, A any](get func(context.Context, Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := decodeQuestion[Q](w, r)
		if err != nil {
			serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		ctx, stale := remarked(r.Context())
		v, err := get(ctx, q)
		remark(w, *stale)
		answer(w, v, err)
	}
}

// staleKey is the key of the place for a remark about an answer, in the context of the question.
type staleKey struct{}

// remarked returns a context in which noteStale leaves why an answer may lack changes.
func remarked(ctx context.Context) (context.Context, *error) {
	stale := new(error)
	return context.WithValue(ctx, staleKey{}, stale), stale
}

// noteStale notes why the answer to the question of a context may lack changes, if it does: those who ask
// for a state that is not the newest get it, and are told.
func noteStale(ctx context.Context, stale error) {
	if place, ok := ctx.Value(staleKey{}).(*error); ok {
		*place = stale
	}
}

func remark(w http.ResponseWriter, stale error) {
	if stale != nil {
		w.Header().Set(view.StaleHeader, stale.Error())
	}
}

// slots bounds how many questions are answered at once, in this process: each holds the part of the
// cluster that it is about, and some the whole. Others wait.
var slots = semaphore.NewWeighted(4)

// bounded answers a question as soon as one of the slots is free.
func bounded[Q, A any](get func(context.Context, Q) (A, error)) func(context.Context, Q) (A, error) {
	return func(ctx context.Context, q Q) (out A, err error) {
		if err := slots.Acquire(ctx, 1); err != nil {
			return out, err
		}
		defer slots.Release(1)
		return get(ctx, q)
	}
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		serve.Say(w, http.StatusUnprocessableEntity, err.Error()+"\n")
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		serve.Say(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client may be gone
}

// decodeQuestion decodes a request in JSON. A newer client may ask with fields that are not known.
func decodeQuestion[Q any](w http.ResponseWriter, r *http.Request) (q Q, err error) {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion))
	if err = dec.Decode(&q); err == nil && dec.More() {
		err = errMore
	}
	if err != nil {
		return q, fmt.Errorf("invalid request: %w", err)
	}
	return q, nil
}

const maxQuestion = 64 << 20 // bytes of a request; changes carry objects

var errMore = errors.New("something follows the JSON value")

// Filter selects the items of a list.
type Filter struct {
	namespace, name string
	local           bool     // only pods of the node
	from, to        []string // of a matrix
}

// wants reports whether an item passes; both parts are optional.
func (f Filter) wants(namespace, name string) bool {
	return (f.namespace == "" || f.namespace == namespace) && strings.Contains(name, f.name)
}
