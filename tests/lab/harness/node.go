package harness

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// Node is one node: the policy plugin with a renderer and a Recorder.
type Node struct {
	Name    string
	Plugin  *policy.Plugin
	Backend backends.Backend
	Desired *renderertest.Recorder

	options Options
	prompt  *atomic.Pointer[policy.Plugin] // the plugin of today
	trial   atomic.Pointer[trial]          // nil: no Try is under way
}

// noBackoff puts retries off for longer than any test: what failed is tried again when the test
// requests it.
const noBackoff = time.Hour

func newNode(name string, kind backends.Kind, options Options) (*Node, error) {
	n := &Node{Name: name, options: options, prompt: &atomic.Pointer[policy.Plugin]{}}
	var err error
	n.Backend, err = kind.New(func() {
		if p := n.prompt.Load(); p != nil {
			p.Prompt()
		}
	})
	if err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		return nil, errors.Join(err, n.Backend.Close())
	}
	return n, nil
}

// start makes the plugin.
func (n *Node) start() error {
	n.Desired = renderertest.NewRecorder("recorder", nil)
	n.Plugin = policy.New(policy.Deps{
		Node: n.Name, DenyNode: n.options.DenyNode,
		Renderers:  []renderer.Renderer{n.Backend.Renderer(), n.Desired},
		MinBackoff: noBackoff, Observer: policy.Observer{Transaction: n.observe},
	})
	if err := n.Plugin.Init(); err != nil {
		return err
	}
	n.prompt.Store(n.Plugin)
	return n.Plugin.AfterInit()
}

func (n *Node) restart() error {
	if err := errors.Join(n.Plugin.Close(), n.Backend.Restart()); err != nil {
		return err
	}
	return n.start()
}

func (n *Node) close() error { return errors.Join(n.Plugin.Close(), n.Backend.Close()) }

// Prompt lets the renderers look again at their dataplanes, and returns when they have.
// The loop commits once more before it builds a snapshot, and it builds one because
// the transaction in between makes the last one old.
func (n *Node) Prompt(ctx context.Context) error {
	n.Plugin.Prompt()
	if err := n.Plugin.Apply(ctx, model.Changes{}); err != nil {
		return err
	}
	_, err := n.Plugin.Snapshot(ctx)
	return err
}
