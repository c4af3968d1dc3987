package ligato

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// The names of ACLs. All of ours begin with ownPrefix; the agent makes them tags of VPP,
// which hold 63 characters.
const (
	ownPrefix   = "sluice-"
	tablePrefix = ownPrefix + "table-" // and a number
	reflectName = ownPrefix + "reflect"
	globalName  = ownPrefix + "global"
)

// aclPrefix is the prefix of the keys of all ACLs of the agent with a label.
func aclPrefix(agents, label string) string {
	return strings.TrimSuffix(agents, "/") + "/" + label + "/config/vpp/acls/v2/acl/"
}

// The JSON form of the agent's ACL, in which it names fields as its protobuf does.
type (
	wireACL struct {
		Name       string          `json:"name"`
		Rules      json.RawMessage `json:"rules"`
		Interfaces wireInterfaces  `json:"interfaces"`
	}
	// wireInterfaces are sorted names. Ingress is what enters VPP.
	wireInterfaces struct {
		Egress  []string `json:"egress,omitempty"`
		Ingress []string `json:"ingress,omitempty"`
	}
	wireRule struct {
		Action string     `json:"action"`
		IPRule wireIPRule `json:"ip_rule"`
	}
	wireIPRule struct {
		IP   wireIP    `json:"ip"`
		ICMP *wireICMP `json:"icmp,omitempty"`
		TCP  *wireTCP  `json:"tcp,omitempty"`
		UDP  *wireUDP  `json:"udp,omitempty"`
	}
	wireIP struct {
		Destination string `json:"destination_network"`
		Source      string `json:"source_network"`
		Protocol    uint8  `json:"protocol,omitempty"` // where none of the three messages is there
	}
	wireICMP struct {
		V6    bool      `json:"icmpv6"`
		Codes wireRange `json:"icmp_code_range"`
		Types wireRange `json:"icmp_type_range"`
	}
	wireRange struct {
		First uint16 `json:"first"`
		Last  uint16 `json:"last"`
	}
	wirePorts struct {
		Lower uint16 `json:"lower_port"`
		Upper uint16 `json:"upper_port"`
	}
	wireUDP struct {
		Destination wirePorts `json:"destination_port_range"`
		Source      wirePorts `json:"source_port_range"`
	}
	wireTCP struct {
		wireUDP
		FlagsMask  uint8 `json:"tcp_flags_mask,omitempty"`
		FlagsValue uint8 `json:"tcp_flags_value,omitempty"`
	}
)

// The actions. REFLECT permits and lets the replies pass.
const (
	denyAction    = "DENY"
	permitAction  = "PERMIT"
	reflectAction = "REFLECT"
)

// content is the rules of an ACL, encoded.
type content struct {
	digest [16]byte
	rules  json.RawMessage
	count  int     // of rules; not known (0) of what was read
	from   []int32 // per rule, the index of the table's rule; nil where there is none
}

// isZero says that there are no rules; no ACL that is published has none.
func (c content) isZero() bool { return c.rules == nil }

func digestOf(rules []byte) (d [16]byte) {
	sum := sha256.Sum256(rules)
	copy(d[:], sum[:])
	return d
}

// newContent encodes rules. There must be one, since the agent ignores an update to none.
func newContent(rules []wireRule, from []int32) content {
	text, err := json.Marshal(rules)
	if err != nil || len(rules) == 0 {
		panic(fmt.Sprintf("ligato: %d rules cannot be encoded: %v", len(rules), err)) // strings and numbers always can
	}
	return content{digest: digestOf(text), rules: text, count: len(rules), from: from}
}

// published is one ACL as it is in the store, or is to be.
type published struct {
	content         content
	egress, ingress []string // interfaces, sorted
}

func (p published) equal(o published) bool {
	return p.content.digest == o.content.digest && slices.Equal(p.egress, o.egress) && slices.Equal(p.ingress, o.ingress)
}

// entry returns the key and the value of an ACL.
func (p published) entry(prefix, name string) (model.Entry, error) {
	value, err := json.Marshal(wireACL{Name: name, Rules: p.content.rules, Interfaces: wireInterfaces{p.egress, p.ingress}})
	if err != nil {
		return model.Entry{}, fmt.Errorf("acl %s: %w", name, err)
	}
	return model.Entry{Key: prefix + name, Value: value}, nil
}

// parse reads an ACL of ours; false when it is not as we write it. Whatever it then says
// is to be replaced.
func parse(prefix string, e model.Entry) (published, bool) {
	var a wireACL
	if json.Unmarshal(e.Value, &a) != nil || len(a.Rules) == 0 {
		return published{}, false
	}
	p := published{content{digest: digestOf(a.Rules), rules: a.Rules}, a.Interfaces.Egress, a.Interfaces.Ingress}
	again, err := p.entry(prefix, strings.TrimPrefix(e.Key, prefix))
	return p, err == nil && bytes.Equal(again.Value, e.Value)
}

// sameToTheAgent reports whether the agent takes two different contents for equal: it does
// not compare the protocol field of rules.
func sameToTheAgent(a, b content) bool {
	field := []byte(`"protocol":`)
	if !bytes.Contains(a.rules, field) && !bytes.Contains(b.rules, field) {
		return false
	}
	var x, y []wireRule
	if json.Unmarshal(a.rules, &x) != nil || json.Unmarshal(b.rules, &y) != nil {
		return true // then they are not compared, either
	}
	for _, rules := range [][]wireRule{x, y} {
		for i := range rules {
			rules[i].IPRule.IP.Protocol = 0
		}
	}
	return slices.EqualFunc(x, y, wireRule.equal)
}

func (r wireRule) equal(o wireRule) bool {
	return r.Action == o.Action && r.IPRule.IP == o.IPRule.IP &&
		same(r.IPRule.ICMP, o.IPRule.ICMP) && same(r.IPRule.TCP, o.IPRule.TCP) && same(r.IPRule.UDP, o.IPRule.UDP)
}

// same compares what two pointers lead to.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
