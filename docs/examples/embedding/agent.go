package embedding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Plugin is what this agent asks of its plugins. It is what cn-infra asks, too.
type Plugin interface {
	String() string
	Init() error
	AfterInit() error
	Close() error
}

// Agent is an agent with plugins, one of which enforces policy.
type Agent struct {
	plugins []Plugin
	policy  *policy.Plugin
	stack   *acl.Renderer
}

// NewAgent makes an agent for the pods of one node, whose VPP is behind a socket.
// Nothing is waited for: VPP may come later.
func NewAgent(node, socket string, log *slog.Logger) (*Agent, error) {
	a := &Agent{policy: policy.New(policy.Deps{Log: log, Node: node})}
	var err error
	a.stack, err = acl.New(acl.Options{
		Log:    log,
		Socket: socket,
		// VPP was restarted, or interfaces came: the plugin lets the renderer look.
		OnChange: a.policy.Prompt,
	})
	if err != nil {
		return nil, err
	}
	a.policy.Renderers = []renderer.Renderer{a.stack}
	a.plugins = []Plugin{a.policy} // and those that this agent is made for
	return a, nil
}

// Start starts the plugins, as frameworks do: all are initialised before the first one
// may rely on another.
func (a *Agent) Start() error {
	for _, p := range a.plugins {
		if err := p.Init(); err != nil {
			return fmt.Errorf("init of %s: %w", p, err)
		}
	}
	for _, p := range a.plugins {
		if err := p.AfterInit(); err != nil {
			return fmt.Errorf("start of %s: %w", p, err)
		}
	}
	return nil
}

// Tell brings the objects of a cluster down to VPP and returns when they are enforced.
// Where objects come from is up to the agent.
func (a *Agent) Tell(ctx context.Context, resync bool, objects []model.Delta) error {
	return a.policy.Apply(ctx, model.Changes{Resync: resync, Deltas: objects})
}

// Stop stops the plugins, the last one first. What VPP enforces stays enforced.
func (a *Agent) Stop() error {
	var errs []error
	for _, p := range slices.Backward(a.plugins) {
		errs = append(errs, p.Close())
	}
	return errors.Join(append(errs, a.stack.Close())...)
}
