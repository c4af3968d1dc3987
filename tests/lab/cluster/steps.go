package cluster

import (
	"fmt"
	"slices"
)

// Step is a state and what led to it.
type Step struct {
	Action string // its name, one of Actions, or "start"
	What   string // in words, for failing tests
	State  State
}

// action is one thing that can happen to a cluster. It changes the objects of one kind,
// for a namespace everything in it, and says in words what it did; nothing when the
// state does not allow it.
type action struct {
	name string
	do   func(*State) string
}

// actions are all that can happen.
func (b builder) actions() []action {
	return []action{
		{"relabel pod", b.pods.relabel},
		{"delete pod", b.pods.delete},
		{"add pod", b.pods.add},
		{"move pod", b.pods.move},
		{"finish pod", b.pods.finish},
		{"terminate pod", b.pods.terminate},
		{"start pod", b.pods.start},
		{"readdress pod", b.pods.readdress},
		{"change families of pod", b.pods.changeFamilies},
		{"change ports of pod", b.pods.changePorts},
		{"reuse the address of", b.pods.reuseAddress},
		{"swap addresses of", b.pods.swapAddresses},
		{"relabel namespace", b.namespaces.relabel},
		{"delete namespace", b.namespaces.delete},
		{"add namespace", b.namespaces.add},
		{"forget namespace", b.namespaces.forget},
		{"add policy", b.policies.add},
		{"delete policy", b.policies.delete},
		{"edit policy", b.policies.edit},
		{"tweak policy", b.policies.tweak},
		{"rename policy", b.policies.rename},
		{"add node", b.nodes.add},
		{"put admin policy", b.admin.add},
		{"delete admin policy", b.admin.delete},
		{"tweak admin policy", b.admin.tweak},
		{"relabel node", b.nodes.relabel},
	}
}

// Actions returns the names of everything that can happen in a step.
func Actions() []string {
	var out []string
	for _, a := range (builder{}).actions() {
		out = append(out, a.name)
	}
	return out
}

// Act draws one step of a kind from a state. Where the state does not allow it, or the
// name is not one of Actions, nothing happens.
func Act(src Source, cfg Config, from State, action string) Step {
	b := newBuilder(src, cfg, false)
	for _, a := range b.actions() {
		if a.name == action {
			return b.act(from, a)
		}
	}
	return Step{Action: action, What: nothing, State: from}
}

// nothing is what happened in steps that the state did not allow.
const nothing = "nothing"

// sequence draws a start and steps from it.
func (b builder) sequence(steps int) []Step {
	out := []Step{{Action: "start", What: "start", State: b.state()}}
	for range steps {
		out = append(out, b.step(out[len(out)-1].State))
	}
	return out
}

// step changes one thing.
func (b builder) step(from State) Step { return b.act(from, pick(b, b.actions(), "step")) }

func (b builder) act(from State, a action) Step {
	next := State{Namespaces: slices.Clone(from.Namespaces), Pods: slices.Clone(from.Pods),
		Policies: slices.Clone(from.Policies), Nodes: slices.Clone(from.Nodes), AdminPolicies: slices.Clone(from.AdminPolicies),
		BaselinePolicies: slices.Clone(from.BaselinePolicies), ClusterPolicies: slices.Clone(from.ClusterPolicies)}
	what := a.do(&next)
	if what == "" {
		what = nothing
	}
	return Step{Action: a.name, What: what, State: next}
}

func freeName(format string, taken map[string]bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf(format, i); !taken[name] {
			return name
		}
	}
}
