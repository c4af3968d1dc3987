package session

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// mirror is the known content of the vswitch.
type mirror struct {
	namespaces map[string]uint32 // by name
	sections   map[section]*present
	foreign    map[section]map[place]string // tags of foreign rules in sections
	tables     map[tableKey]uint32          // by namespace: the first namespace with the same routing table
}

// tableKey identifies the routing table of a namespace.
type tableKey struct {
	namespace uint32
	family    int
}

// present are our rules in a section.
type present struct {
	rules rules
	tags  map[place]string
	as    *wanted // the rules that were installed; nil when unknown
}

// found is a dumped session rule.
type found struct {
	section
	place      place
	action     uint32
	tag        string
	namespaces []uint32 // of the routing table
}

// read reads everything. Tags identify our rules. Dumps do not include the tags of IPv6 rules;
// these are read from the command line. If that fails, an IPv6 rule counts as ours when it is in a
// section in which only we should have rules.
func (l *link) read(ctx context.Context, namespaces map[string]uint32, mine func(section) bool) (*mirror, error) {
	m := &mirror{namespaces: namespaces, sections: map[section]*present{}, foreign: map[section]map[place]string{}, tables: map[tableKey]uint32{}}
	all, err := l.dump(ctx)
	if err != nil {
		return nil, err
	}
	tags := &tagReader{link: l, names: map[uint32]string{}, tables: map[tagTable]map[string]string{}}
	for name, index := range m.namespaces {
		tags.names[index] = name
	}
	for _, d := range all {
		f, ok := l.found(d)
		if !f.local {
			for _, n := range f.namespaces {
				m.tables[tableKey{n, f.family}] = slices.Min(f.namespaces)
			}
		}
		if !ok {
			continue
		}
		ours, err := tags.isOurs(ctx, &f, mine)
		if err != nil {
			return nil, err
		}
		m.add(f, ours)
	}
	return m, nil
}

// found converts a dumped rule. ok is false for the roots of tables, which VPP itself creates.
func (l *link) found(d *session.SessionRulesV2Details) (found, bool) {
	f := found{section: section{local: isLocal(d.Scope), transport: api.TCP, own: vpp.FromPrefix(d.Lcl)}, action: d.ActionIndex, namespaces: d.AppnsIndex}
	f.place.peer, f.tag = vpp.FromPrefix(d.Rmt), strings.TrimRight(d.Tag, "\x00")
	if d.TransportProto == session.TRANSPORT_PROTO_API_UDP {
		f.transport = api.UDP
	}
	if !f.place.peer.Addr().Is4() {
		f.family = 1
	}
	if f.local {
		f.place.port = l.port(d.RmtPort)
	} else {
		f.place.port = l.port(d.LclPort)
	}
	known := d.TransportProto == session.TRANSPORT_PROTO_API_TCP || d.TransportProto == session.TRANSPORT_PROTO_API_UDP
	return f, known && d.ActionIndex != actionNone && len(d.AppnsIndex) > 0
}

// add records a rule. Those of a routing table belong to the first of its namespaces.
func (m *mirror) add(f found, ours bool) {
	at := f.section
	at.namespace = slices.Min(f.namespaces)
	if !ours {
		if m.foreign[at] == nil {
			m.foreign[at] = map[place]string{}
		}
		m.foreign[at][f.place] = f.tag
		return
	}
	action := api.Permit
	if f.action == actionDrop {
		action = api.Deny
	}
	p := m.section(at)
	p.rules[f.place], p.tags[f.place] = action, f.tag
}

// section returns the rules of a section.
func (m *mirror) section(s section) *present {
	p := m.sections[s]
	if p == nil {
		p = &present{rules: rules{}, tags: map[place]string{}}
		m.sections[s] = p
	}
	return p
}

// tableOf returns the first namespace with the same routing table, which represents the table.
func (m *mirror) tableOf(namespace uint32, family int) uint32 {
	if first, ok := m.tables[tableKey{namespace, family}]; ok {
		return first
	}
	return namespace
}

// permits reports whether the rules of a section permit a connection attempt.
func (m *mirror) permits(s section, peer netip.Addr, port uint16) bool {
	p := m.sections[s]
	return p == nil || p.rules.decide(peer, port) == api.Permit
}

// tagReader determines which rules are ours.
type tagReader struct {
	link   *link
	names  map[uint32]string // of namespaces
	tables map[tagTable]map[string]string
}

type tagTable struct {
	namespace uint32
	transport api.Protocol
	local     bool
}

// isOurs reports whether this renderer owns a rule, and fills in its tag.
func (r *tagReader) isOurs(ctx context.Context, f *found, mine func(section) bool) (bool, error) {
	if f.family == 0 {
		return strings.HasPrefix(f.tag, ownTag), nil
	}
	at := f.section
	at.namespace = slices.Min(f.namespaces)
	text := fmt.Sprintf("%s %d %s %d", f.own, 0, f.place.peer, r.link.port(f.place.port))
	if !f.local {
		text = fmt.Sprintf("%s %d %s %d", f.own, r.link.port(f.place.port), f.place.peer, 0)
	}
	tags, err := r.read(ctx, tagTable{at.namespace, f.transport, f.local})
	if err != nil {
		return false, err
	}
	if tag, ok := tags[text]; ok {
		f.tag = tag
		return strings.HasPrefix(tag, ownTag), nil
	}
	f.tag = tagOf(at, f.place, action(f.action), "")
	return mine(at), nil
}

func action(index uint32) api.Action {
	if index == actionDrop {
		return api.Deny
	}
	return api.Permit
}

// read returns the tags of a table, which it reads once.
func (r *tagReader) read(ctx context.Context, t tagTable) (map[string]string, error) {
	tags, ok := r.tables[t]
	if ok {
		return tags, nil
	}
	var err error
	if name, known := r.names[t.namespace]; known {
		if tags, err = r.link.tagsOf(ctx, name, t.transport, t.local); err != nil && !isUnknown(err) {
			return nil, err
		}
	}
	r.tables[t] = tags
	return tags, nil
}

// everything is the own side of sections with local rules.
func everything(family int) netip.Prefix { return tops[family].peer }
