package vswitch

import (
	"hash/maphash"
	"slices"
	"unsafe"

	"go.fd.io/govpp/binapi/acl_types"

	"github.com/sluice-net/sluice/internal/interned"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
)

// content is the rules of an ACL. It is immutable. ACLs with equal rules share it, as the ACLs of
// pods with the same peers do.
type content struct {
	rules      []acl_types.ACLRule // without pointers, as there may be hundreds of thousands
	classifier *classify.Classifier
}

// rule returns a rule.
func (c *content) rule(n int) Rule {
	r, _ := ruleFromWire(&c.rules[n]) // it was checked before
	return r
}

// action returns the action of a rule.
func (c *content) action(n uint32) RuleAction { return RuleAction(c.rules[n].IsPermit) }

// contents are what ACLs have, by a hash of the rules.
var (
	contents    interned.Values[uint64, content]
	contentSeed = maphash.MakeSeed()
)

// contentOf returns the content with the given rules.
func contentOf(rules []Rule) *content {
	wire := rulesToWire(rules)
	var hash uint64
	if len(wire) > 0 {
		hash = maphash.Bytes(contentSeed, unsafe.Slice((*byte)(unsafe.Pointer(&wire[0])), len(wire)*int(unsafe.Sizeof(wire[0]))))
	}
	if known := contents.Get(hash); known != nil && slices.Equal(known.rules, wire) {
		return known
	}
	c := &content{wire, classify.New(rules)}
	contents.Put(hash, c)
	return c
}
