package debugapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/plugins/endpoints/keeper"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// Registrar accepts the reports of CNI plugins about interfaces in the kernel.
type Registrar interface {
	Register(r wire.Registration) (wire.Endpoint, error)
	Remove(a wire.Attachment) error
	Collect(v wire.Valid) error
	Wait(ctx context.Context, a wire.Attachment, timeout time.Duration) (wire.Endpoint, error)
}

// VPP waits for interfaces of VPP.
type VPP interface {
	AwaitVPP(ctx context.Context, v wire.VPP) wire.Endpoint
}

// Endpoints answers CNI plugins as package wire specifies. The first of each list answers; a list
// is empty if no dataplane has such interfaces.
type Endpoints struct {
	Registrars []Registrar
	VPPs       []VPP
	List       func() []wire.Endpoint
}

// The answers of agents that do not handle such interfaces.
const (
	noEndpoints = "interfaces are registered with agents that enforce in the kernel (--renderers xdp); this one does not"
	noVPP       = "this agent does not enforce in VPP (--renderers acl or vpp-plugin)"
)

// routes returns the routes for CNI plugins, as package wire specifies.
func (a Endpoints) routes() Routes {
	return Routes{
		"GET " + wire.PathEndpoints:    list(a.list),
		"POST " + wire.PathEndpoints:   first(a.Registrars, noEndpoints, change(register)),
		"DELETE " + wire.PathEndpoints: first(a.Registrars, noEndpoints, change(remove)),
		"POST " + wire.PathGC:          first(a.Registrars, noEndpoints, change(collect)),
		"GET " + wire.PathVPP:          first(a.VPPs, noVPP, awaitVPP),
		"GET " + wire.PathEnforced:     first(a.Registrars, noEndpoints, change(await)),
	}
}

// asked is a handler that uses an implementation of a dataplane.
type asked[T any] func(w http.ResponseWriter, r *http.Request, by T)

// first answers by the first of a list, or with an error if it is empty.
func first[T any](all []T, none string, do asked[T]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(all) == 0 {
			serve.Say(w, http.StatusNotFound, none+"\n")
			return
		}
		do(w, r, all[0])
	}
}

// change answers a CNI plugin, which looks at the status.
func change(do func(w http.ResponseWriter, r *http.Request, k Registrar) (any, error)) asked[Registrar] {
	return func(w http.ResponseWriter, r *http.Request, k Registrar) {
		v, err := do(w, r, k)
		switch {
		case errors.Is(err, keeper.ErrUnregistered):
			serve.Say(w, http.StatusNotFound, err.Error()+"\n")
		case errors.Is(err, keeper.ErrLater):
			serve.Say(w, http.StatusServiceUnavailable, err.Error()+"\n")
		case err != nil:
			serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		default:
			answer(w, v, nil)
		}
	}
}

// maxWire is the largest request of a CNI plugin, in bytes.
const maxWire = 1 << 20

// decodeWire decodes the request of a CNI plugin, which may have another version.
func decodeWire[Q any](w http.ResponseWriter, r *http.Request) (q Q, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxWire)).Decode(&q); err != nil {
		return q, fmt.Errorf("invalid request: %w", err)
	}
	return q, nil
}

func register(w http.ResponseWriter, r *http.Request, k Registrar) (any, error) {
	q, err := decodeWire[wire.Registration](w, r)
	if err != nil {
		return nil, err
	}
	return k.Register(q)
}

func remove(w http.ResponseWriter, r *http.Request, k Registrar) (any, error) {
	q, err := decodeWire[wire.Attachment](w, r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, k.Remove(q)
}

func collect(w http.ResponseWriter, r *http.Request, k Registrar) (any, error) {
	q, err := decodeWire[wire.Valid](w, r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, k.Collect(q)
}

func await(_ http.ResponseWriter, r *http.Request, k Registrar) (any, error) {
	q := r.URL.Query()
	timeout, err := time.ParseDuration(q.Get("timeout"))
	if err != nil || timeout < 0 {
		return nil, fmt.Errorf("timeout %q: want a duration like 5s", q.Get("timeout"))
	}
	return k.Wait(r.Context(), wire.Attachment{ContainerID: q.Get("containerId"), IfName: q.Get("ifName")}, timeout)
}

// list returns the interfaces with their owners. The filter's name matches part of the name of a
// pod or of an interface.
func (a Endpoints) list(_ context.Context, f Filter) ([]wire.Endpoint, error) {
	out := []wire.Endpoint{}
	for _, e := range a.List() {
		namespace, name, _ := strings.Cut(e.Pod, "/")
		if f.wants(namespace, name) || f.namespace == "" && strings.Contains(e.Interface, f.name) {
			out = append(out, e)
		}
	}
	return out, nil
}

// awaitVPP answers a CNI plugin that made or tagged an interface of VPP.
func awaitVPP(w http.ResponseWriter, r *http.Request, by VPP) {
	v, err := readVPP(r)
	if err != nil {
		serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	answer(w, by.AwaitVPP(r.Context(), v), nil)
}

func readVPP(r *http.Request) (v wire.VPP, err error) {
	q := r.URL.Query()
	v = wire.VPP{Interface: q.Get("interface"), Namespace: q.Get("namespace"), Name: q.Get("name"), Until: q.Get("until")}
	if v.Timeout, err = time.ParseDuration(q.Get("timeout")); err != nil {
		return v, fmt.Errorf("timeout %q: want a duration like 5s", q.Get("timeout"))
	}
	return v, v.Check()
}
