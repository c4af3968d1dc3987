package embedding

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
)

// Event is what the main loop of this agent delivers to its handlers.
type Event struct {
	Resync  bool // Objects are the whole state
	Objects []model.Delta
}

// Operation is one step of a transaction: a key and its value, which is nil when the key
// is deleted.
type Operation struct {
	Key   string
	Value []byte
}

// PolicyHandler is one of the handlers of this agent. The loop gives it an event, and
// applies what it returns to the vswitch, together with what other handlers return.
type PolicyHandler struct {
	policy     *policy.Handler
	publish    *ligato.Renderer
	txn        []Operation       // of the event that is being handled
	configured map[string][]byte // what the loop has applied
}

// NewPolicyHandler makes a handler. Which interfaces connect a pod, the agent knows.
func NewPolicyHandler(node string, interfaces func(api.PodID) []string, uplinks ...string) (*PolicyHandler, error) {
	h := &PolicyHandler{configured: map[string][]byte{}}
	var err error
	if h.publish, err = ligato.New(ligato.Options{Store: h, Interfaces: interfaces, Uplinks: uplinks}); err != nil {
		return nil, err
	}
	h.policy = policy.NewHandler(policy.Deps{Node: node, Renderers: []renderer.Renderer{h.publish}})
	return h, h.policy.Init()
}

// Handle returns what has to be applied because of an event, in this order.
func (h *PolicyHandler) Handle(ctx context.Context, e Event) ([]Operation, error) {
	h.txn = nil
	deliver := h.policy.Update
	if e.Resync {
		deliver = h.policy.Resync
	}
	err := deliver(ctx, e.Objects)
	return h.txn, serious(err)
}

// Plugged returns what has to be applied because interfaces of pods came or went.
func (h *PolicyHandler) Plugged(ctx context.Context) ([]Operation, error) {
	h.txn = nil
	err := h.policy.Reapply(ctx)
	return h.txn, serious(err)
}

// Heal returns what has to be applied after something failed or was lost. The vswitch is
// configured as it says; objects need not be delivered again.
func (h *PolicyHandler) Heal(ctx context.Context, configured map[string][]byte) ([]Operation, error) {
	h.txn, h.configured = nil, maps.Clone(configured)
	h.publish.Invalidate()
	err := h.policy.Reapply(ctx)
	return h.txn, serious(err)
}

// serious drops the error that a pod is not attached yet. Everything else was done then,
// and Plugged is called when it is.
func serious(err error) error {
	if errors.Is(err, renderer.ErrNoInterface) {
		return nil
	}
	return err
}

// Close ends the handler.
func (h *PolicyHandler) Close() error { return h.policy.Close() }

// List tells the renderer what is configured. It implements ligato.Store.
func (h *PolicyHandler) List(_ context.Context, prefix string) ([]model.Entry, int64, error) {
	var out []model.Entry
	for _, key := range slices.Sorted(maps.Keys(h.configured)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, model.Entry{Key: key, Value: h.configured[key]})
		}
	}
	return out, 0, nil
}

// Write puts what the renderer writes into the transaction that is open.
func (h *PolicyHandler) Write(_ context.Context, puts []model.Entry, deletes []string) error {
	for _, e := range puts {
		h.txn = append(h.txn, Operation{e.Key, e.Value})
		h.configured[e.Key] = e.Value
	}
	for _, key := range deletes {
		h.txn = append(h.txn, Operation{Key: key})
		delete(h.configured, key)
	}
	return nil
}
