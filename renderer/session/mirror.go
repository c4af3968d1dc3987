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

// mirror is what is known to be in the vswitch.
type mirror struct {
	namespaces map[string]uint32 // by name
	sections   map[section]*present
	foreign    map[section]map[place]string // tags of the rules of others in sections
	tables     map[tableKey]uint32          // by namespace: the first one of its routing table
}

// tableKey names the routing table of a namespace.
type tableKey struct {
	namespace uint32
	family    int
}

// present are the rules of a section that are ours.
type present struct {
	rules rules
	tags  map[place]string
	as    *wanted // what they were brought to; nil when that is not known
}

// found is a session rule of a dump.
type found struct {
	section
	place      place
	action     uint32
	tag        string
	namespaces []uint32 // of the table
}

// read reads everything. Rules are ours by their tags; those of IPv6, whose tags dumps do not
// tell, by what the command line says, and where that says nothing, by being in a section that
// only we should have rules in.
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

// found reads a rule of a dump, but for those that no VPP was told.
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

// add takes over a rule. Those of a routing table are of the first of its namespaces.
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

// tableOf returns the first of the namespaces of a routing table, which stands for it.
func (m *mirror) tableOf(namespace uint32, family int) uint32 {
	if first, ok := m.tables[tableKey{namespace, family}]; ok {
		return first
	}
	return namespace
}

// permits reports whether the rules of a section permit an attempt.
func (m *mirror) permits(s section, peer netip.Addr, port uint16) bool {
	p := m.sections[s]
	return p == nil || p.rules.decide(peer, port) == api.Permit
}

// tagReader finds out which rules are ours.
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

// isOurs reports whether a rule is ours, and completes its tag.
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

// read returns the tags of a table, which it asks for once.
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

// everything is the own side of sections of local rules.
func everything(family int) netip.Prefix { return tops[family].peer }
