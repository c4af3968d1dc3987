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

// actions are all that can happen to a cluster. Each changes the objects of one kind,
// for a namespace everything in it, and says in words what it did; nothing when the
// state does not allow it.
var actions = []struct {
	name string
	do   func(builder, *State) string
}{
	{"relabel pod", builder.relabelPod},
	{"delete pod", builder.deletePod},
	{"add pod", builder.addPod},
	{"move pod", builder.movePod},
	{"finish pod", builder.finishPod},
	{"terminate pod", builder.terminatePod},
	{"start pod", builder.startPod},
	{"readdress pod", builder.readdressPod},
	{"change families of pod", builder.changeFamilies},
	{"change ports of pod", builder.changePorts},
	{"reuse the address of", builder.reusePodAddress},
	{"swap addresses of", builder.swapAddresses},
	{"relabel namespace", builder.relabelNamespace},
	{"delete namespace", builder.deleteNamespace},
	{"add namespace", builder.addNamespace},
	{"forget namespace", builder.forgetNamespace},
	{"add policy", builder.addPolicy},
	{"delete policy", builder.deletePolicy},
	{"edit policy", builder.editPolicy},
	{"tweak policy", builder.tweakPolicy},
	{"rename policy", builder.renamePolicy},
	{"add node", builder.addNode},
	{"put admin policy", builder.addAdminPolicy},
	{"delete admin policy", builder.deleteAdminPolicy},
	{"tweak admin policy", builder.tweakAdminPolicy},
	{"relabel node", builder.relabelNode},
}

// Actions returns the names of everything that can happen in a step.
func Actions() []string {
	var out []string
	for _, a := range actions {
		out = append(out, a.name)
	}
	return out
}

// Act draws one step of a kind from a state. Where the state does not allow it, or the
// name is not one of Actions, nothing happens.
func Act(src Source, cfg Config, from State, action string) Step {
	b := newBuilder(src, cfg, false)
	for i, a := range actions {
		if a.name == action {
			return b.act(from, i)
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
func (b builder) step(from State) Step { return b.act(from, b.Below(len(actions), "step")) }

func (b builder) act(from State, i int) Step {
	next := State{Namespaces: slices.Clone(from.Namespaces), Pods: slices.Clone(from.Pods),
		Policies: slices.Clone(from.Policies), Nodes: slices.Clone(from.Nodes), AdminPolicies: slices.Clone(from.AdminPolicies),
		BaselinePolicies: slices.Clone(from.BaselinePolicies), ClusterPolicies: slices.Clone(from.ClusterPolicies)}
	b.nodes = max(1, len(from.Nodes))
	what := actions[i].do(b, &next)
	if what == "" {
		what = nothing
	}
	return Step{Action: actions[i].name, What: what, State: next}
}

// addNode adds a node that no pod is on yet; clusters grow to half more than they are
// told to have, and one.
func (b builder) addNode(s *State) string {
	if len(s.Nodes) > b.cfg.Nodes+b.cfg.Nodes/2 {
		return ""
	}
	n := b.node(len(s.Nodes))
	s.Nodes = append(s.Nodes, n)
	return "add node " + n.Name
}

func freeName(format string, taken map[string]bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf(format, i); !taken[name] {
			return name
		}
	}
}
