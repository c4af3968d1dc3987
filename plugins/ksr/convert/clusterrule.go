package convert

import (
	"unicode/utf8"

	"github.com/sluice-net/sluice/api/model"
)

// maxRuleName is the maximum length of a rule name in characters.
const maxRuleName = 100

func (d *dialect) rules(rules []clusterRule, peerList string, at place) []*model.ClusterPolicy_Rule {
	var out []*model.ClusterPolicy_Rule
	for i := range rules {
		out = append(out, d.rule(&rules[i], peerList, at.index(i)))
	}
	return out
}

// rule converts a rule. Unknown parts must never open. So a rule that allows ignores unknown peers
// and ports, and keeps the others; any other rule denies everything, as the API requires for
// unknown peers. A port that is known, but that no traffic can have, matches nothing in every rule.
func (d *dialect) rule(r *clusterRule, peerList string, at place) *model.ClusterPolicy_Rule {
	name := readRuleName(r.name, at.child("name"))
	action := d.action(r.action, at.child("action"))
	peers, peersKnown := d.peers(r.peers, peerList, at.child(peerList))
	ports, portsKnown := r.convertPorts(at.child(d.portList))
	if known := peersKnown && portsKnown; !known && action != model.ClusterPolicy_ACTION_ALLOW {
		at.errorf("denies everything: it does not allow, and not all of its peers and ports are known")
		return denyAll(name)
	}
	return &model.ClusterPolicy_Rule{Name: name, Action: action, Peers: peers, AnyPort: r.anyPort, Ports: ports}
}

// denyAll returns a rule without peers, which are thus unknown: it denies everyone.
func denyAll(name string) *model.ClusterPolicy_Rule {
	return &model.ClusterPolicy_Rule{Name: name, Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}
}

// closed returns the fail-closed form of a rule that cannot be kept: a rule that allows matches
// nothing, any other denies everything.
func closed(r *model.ClusterPolicy_Rule) *model.ClusterPolicy_Rule {
	if r.Action != model.ClusterPolicy_ACTION_ALLOW {
		return denyAll(r.Name)
	}
	return &model.ClusterPolicy_Rule{Name: r.Name, Action: r.Action, Peers: []*model.ClusterPolicy_Peer{{}}, AnyPort: true}
}

// readRuleName drops a name that is too long: it is for display only.
func readRuleName(name string, at place) string {
	if n := utf8.RuneCountInString(name); n > maxRuleName {
		at.errorf("has %d characters, the limit is %d: the rule has no name", n, maxRuleName)
		return ""
	}
	return valid(name)
}

func (d *dialect) action(action string, at place) model.ClusterPolicy_Action {
	known, ok := d.actions[action]
	if !ok {
		at.errorf("%s is not an action of %s: want %s; what the rule matches is denied", model.Quoted(action), d.noun, d.wants)
		return model.ClusterPolicy_ACTION_UNSPECIFIED
	}
	return known
}
