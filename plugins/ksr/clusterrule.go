package ksr

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// maxRuleName is the limit of the name of a rule, in characters.
const maxRuleName = 100

func (f *findings) clusterRules(rules []clusterRule, d *dialect, peerList string, path *field.Path) []*model.ClusterPolicy_Rule {
	var out []*model.ClusterPolicy_Rule
	for i := range rules {
		out = append(out, f.clusterRule(&rules[i], d, peerList, path.Index(i)))
	}
	return out
}

// clusterRule converts a rule. What is not known must never open. So a rule that
// allows matches nothing by a peer or port that is not known, while the others in it
// hold; and any other rule denies everything, as the API asks of whoever finds a peer
// that he does not know. A port that is known, but that no traffic can have, matches
// nothing in every rule.
func (f *findings) clusterRule(r *clusterRule, d *dialect, peerList string, path *field.Path) *model.ClusterPolicy_Rule {
	name := f.ruleName(r.name, path.Child("name"))
	action := f.action(r.action, d, path.Child("action"))
	peers, peersKnown := f.clusterPeers(r.peers, d, peerList, path.Child(peerList))
	ports, portsKnown := f.clusterPorts(r, path.Child(d.portList))
	if known := peersKnown && portsKnown; !known && action != model.ClusterPolicy_ACTION_ALLOW {
		f.add(path, "denies everything: it does not allow, and not all of its peers and ports are known")
		return denyAll(name)
	}
	return &model.ClusterPolicy_Rule{Name: name, Action: action, Peers: peers, AnyPort: r.anyPort, Ports: ports}
}

// denyAll has no peers, which is not known either: it denies everyone.
func denyAll(name string) *model.ClusterPolicy_Rule {
	return &model.ClusterPolicy_Rule{Name: name, Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}
}

// closed returns what becomes of a rule that cannot be kept: one that allows matches
// nothing, any other denies everything.
func closed(r *model.ClusterPolicy_Rule) *model.ClusterPolicy_Rule {
	if r.Action != model.ClusterPolicy_ACTION_ALLOW {
		return denyAll(r.Name)
	}
	return &model.ClusterPolicy_Rule{Name: r.Name, Action: r.Action, Peers: []*model.ClusterPolicy_Peer{{}}, AnyPort: true}
}

// ruleName leaves out a name that is too long: it is for people only.
func (f *findings) ruleName(name string, path *field.Path) string {
	if n := utf8.RuneCountInString(name); n > maxRuleName {
		f.add(path, "has %d characters, the limit is %d: the rule has no name", n, maxRuleName)
		return ""
	}
	return valid(name)
}

func (f *findings) action(action string, d *dialect, path *field.Path) model.ClusterPolicy_Action {
	known, ok := d.actions[action]
	if !ok {
		f.add(path, "%s is not an action of %s: want %s; what the rule matches is denied", quoted(action), d.noun, d.wants)
		return model.ClusterPolicy_ACTION_UNSPECIFIED
	}
	return known
}
