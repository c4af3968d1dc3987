package vswitch

import (
	"hash/maphash"
	"slices"
	"sync"
	"unsafe"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/sluice-net/sluice/internal/lib/interned"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
)

// content is the rules of an ACL. It is immutable. ACLs with equal rules share it, as the ACLs of
// pods with the same peers do.
type content struct {
	rules      []acl_types.ACLRule // without pointers, as there may be hundreds of thousands
	classifier *classify.Classifier
	quirky     bool // some action is unknown
}

// rule returns a rule.
func (c *content) rule(n int) Rule {
	r, _ := ruleFromWire(&c.rules[n]) // it was checked before
	return r
}

// action returns the action of a rule.
func (c *content) action(n uint32) RuleAction { return RuleAction(c.rules[n].IsPermit) }

// contents are what ACLs have, by a hash of the rules. Equal ones are stored once, which saves 36 of
// 170 MiB on L (BenchmarkWorkloadInit with acl).
var (
	contents    interned.Values[uint64, content]
	contentSeed = maphash.MakeSeed()
)

// contentOf returns the content with the given rules. It keeps their wire form only.
func contentOf(rules []Rule, wire []acl_types.ACLRule) *content {
	hash := hashOf(wire)
	if known := contentWith(hash, wire); known != nil {
		return known
	}
	c := &content{wire, classify.New(rules), slices.ContainsFunc(rules, func(r Rule) bool { return r.Action > RulePermitReflect })}
	contents.Put(hash, c)
	return c
}

// parsed are the rules of the last messages, for the next ones.
var parsed = sync.Pool{New: func() any { return new([]Rule) }}

// contentFromWire returns the content with the rules of a message, which it may change and keep. It
// validates those that no ACL has; see rulesFromWire.
func contentFromWire(list []acl_types.ACLRule, quirks bool) (*content, govpp.VPPApiError) {
	if known := contentWith(hashOf(list), list); known != nil && (quirks || !known.quirky) {
		return known, 0
	}
	rules := parsed.Get().(*[]Rule)
	defer parsed.Put(rules)
	var rv govpp.VPPApiError
	if *rules, rv = rulesFromWire((*rules)[:0], list, quirks); rv != 0 {
		return nil, rv
	}
	for i := range list {
		list[i] = ruleToWire(&(*rules)[i])
	}
	return contentOf(*rules, list), 0
}

// contentWith returns the content in use that has the given rules and their hash, nil if there is
// none.
func contentWith(hash uint64, wire []acl_types.ACLRule) *content {
	if known := contents.Get(hash); known != nil && slices.Equal(known.rules, wire) {
		return known
	}
	return nil
}

func hashOf(wire []acl_types.ACLRule) uint64 {
	if len(wire) == 0 {
		return 0
	}
	return maphash.Bytes(contentSeed, unsafe.Slice((*byte)(unsafe.Pointer(&wire[0])), len(wire)*int(unsafe.Sizeof(wire[0]))))
}
