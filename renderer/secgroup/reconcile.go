package secgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Largest calls. Neutron creates 100 to 200 rules in a second, but with OVN only five.
const (
	maxBulk      = 100
	maxAddresses = 1000
)

// reconciler executes one Commit: it compares what is wanted with what is held, and makes the calls
// that remove the difference.
type reconciler struct {
	r      *Renderer
	held   *held
	want   *wanted
	drifts bool // differences come from others
	unsure bool // what is held may differ from what Neutron has
	full   bool // the quota leaves no group without rules

	ids      map[string]string        // IDs of groups, by key of the content
	contents map[string]map[Rule]bool // of the groups by key, with IDs of address groups
	failed   map[string]error         // groups that could not be made, by key
}

// all makes all calls, in the order that keeps every port protected: what permits more comes before
// ports change, and what is no longer used goes after that.
func (x *reconciler) all(ctx context.Context) error {
	x.ids, x.contents, x.failed = map[string]string{}, map[string]map[Rule]bool{}, map[string]error{}
	early := x.startsToName()
	for _, step := range []func(context.Context) error{
		x.extend,
		func(ctx context.Context) error { return x.shrink(ctx, early) },
		x.groups, x.ports,
		func(ctx context.Context) error { return x.shrink(ctx, true) },
		x.collect,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(x.failed)) {
		errs = append(errs, x.failed[key])
	}
	return errors.Join(errs...)
}

// call makes one call.
func (x *reconciler) call(ctx context.Context, op Op) (Result, error) {
	if x.drifts {
		if x.r.reads.drift == nil {
			x.r.reads.drift = map[string]uint64{}
		}
		x.r.reads.drift[op.Kind.String()]++
	}
	x.r.log.Debug("neutron call", "op", op.Kind, "id", op.ID, "rules", len(op.Rules), "addresses", len(op.Addresses))
	res, err := x.r.options.API.Apply(ctx, op)
	if err != nil {
		x.unsure = true
		return res, fmt.Errorf("%s %s: %w", op.Kind, op.ID, err)
	}
	return res, nil
}

// extend creates address groups and adds addresses.
func (x *reconciler) extend(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(x.want.addrs)) {
		a := x.held.addrs[x.held.names[name]]
		if a == nil {
			first := x.want.addrs[name][:min(maxAddresses, len(x.want.addrs[name]))]
			res, err := x.call(ctx, Op{Kind: CreateAddressGroup, Name: name, Addresses: first})
			if err != nil {
				return err
			}
			a = &AddressGroup{ID: res.ID, Name: name, Addresses: slices.Clone(first)}
			x.held.addrs[a.ID], x.held.names[name] = a, a.ID
		}
		for part := range slices.Chunk(minus(x.want.addrs[name], a.Addresses), maxAddresses) {
			if _, err := x.call(ctx, Op{Kind: AddAddresses, ID: a.ID, Addresses: part}); err != nil {
				return err
			}
			a.Addresses = append(a.Addresses, part...)
		}
	}
	return nil
}

// shrink removes addresses that are no longer wanted.
func (x *reconciler) shrink(ctx context.Context, now bool) error {
	if !now {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(x.want.addrs)) {
		a := x.held.addrs[x.held.names[name]]
		for part := range slices.Chunk(minus(a.Addresses, x.want.addrs[name]), maxAddresses) {
			if _, err := x.call(ctx, Op{Kind: RemoveAddresses, ID: a.ID, Addresses: part}); err != nil {
				return err
			}
			a.Addresses = minus(a.Addresses, part)
		}
	}
	return nil
}

// minus returns the prefixes of a that are not in b.
func minus(a, b []netip.Prefix) (out []netip.Prefix) {
	in := make(map[netip.Prefix]struct{}, len(b))
	for _, p := range b {
		in[p] = struct{}{}
	}
	for _, p := range a {
		if _, ok := in[p]; !ok {
			out = append(out, p)
		}
	}
	return out
}

// startsToName reports whether a group that a port gets names an address group that loses
// addresses, while no group that exists names it in the same way. These addresses must go first:
// the port would permit them, as neither its old nor its new rules do.
func (x *reconciler) startsToName() bool {
	for key, c := range x.want.groups {
		for name := range c.addrs {
			a := x.held.addrs[x.held.names[name]]
			if a != nil && len(minus(a.Addresses, x.want.addrs[name])) > 0 && x.moves(key) {
				return true
			}
		}
	}
	return false
}

// moves reports whether a port gets another group, whose content has the key.
func (x *reconciler) moves(key string) bool {
	rules, ok := x.resolve(x.want.groups[key])
	if !ok {
		return true
	}
	for id, k := range x.want.ports {
		if k != key {
			continue
		}
		p := x.held.ports[id]
		if owned := x.held.owned(p); len(owned) != 1 || len(p.Groups) != 1 || !x.held.groups[owned[0]].holds(rules) {
			return true
		}
	}
	return false
}

// resolve returns the rules of a content with the IDs of address groups; ok is false if one does
// not exist.
func (x *reconciler) resolve(c *content) (out map[Rule]bool, ok bool) {
	out = make(map[Rule]bool, len(c.rules))
	for rule := range c.rules {
		if rule.AddressGroup != "" {
			if rule.AddressGroup = x.held.names[rule.AddressGroup]; rule.AddressGroup == "" {
				return nil, false
			}
		}
		out[rule] = true
	}
	return out, true
}

// holds reports whether a group has exactly the rules.
func (g *heldGroup) holds(rules map[Rule]bool) bool {
	if len(g.rules) != len(rules) {
		return false
	}
	for r := range g.rules {
		if !rules[r] {
			return false
		}
	}
	return true
}

// groups finds or makes a group for each content.
func (x *reconciler) groups(ctx context.Context) error {
	x.find()
	for _, key := range slices.Sorted(maps.Keys(x.want.groups)) {
		if x.ids[key] != "" {
			continue
		}
		err := x.group(ctx, key)
		if errors.Is(err, ErrQuota) {
			x.failed[key] = fmt.Errorf("%w: pods keep their groups, and those without are closed", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find finds the contents that groups have already. Of equal groups the first by ID counts.
func (x *reconciler) find() {
	byKey := map[string]string{}
	for key, c := range x.want.groups {
		x.contents[key], _ = x.resolve(c)
		byKey[digest(slices.SortedFunc(maps.Keys(x.contents[key]), Rule.Compare))] = key
	}
	for _, id := range slices.Sorted(maps.Keys(x.held.groups)) {
		key, ok := byKey[digest(slices.SortedFunc(maps.Keys(x.held.groups[id].rules), Rule.Compare))]
		if ok && x.ids[key] == "" {
			x.ids[key] = id
		}
	}
}

// group makes a group for a content: it changes one whose ports all want the content, or creates
// one, whichever takes fewer calls.
func (x *reconciler) group(ctx context.Context, key string) error {
	rules := x.contents[key]
	name := x.r.namePrefix() + key
	g := cmp.Or(x.reusable(key), x.unfinished(name))
	if g == nil {
		res, err := x.call(ctx, Op{Kind: CreateGroup, Name: name})
		if err != nil {
			return err
		}
		g = x.held.group(res.ID, name, res.Rules)
	}
	if err := x.add(ctx, g, rules); err != nil {
		return err
	}
	if err := x.surplus(ctx, g, rules); err != nil {
		return err
	}
	x.ids[key] = g.id
	return nil
}

// used returns the groups that ports have, and those of the contents so far.
func (x *reconciler) used() map[string]bool {
	used := map[string]bool{}
	for _, id := range x.ids {
		used[id] = true
	}
	for _, p := range x.held.ports {
		for _, id := range p.Groups {
			used[id] = true
		}
	}
	return used
}

// unfinished returns the group that an earlier Commit began for the same content and that no port
// has; nil if there is none. So calls that take longer than their time do not begin anew for ever.
func (x *reconciler) unfinished(name string) *heldGroup {
	used := x.used()
	for _, id := range slices.Sorted(maps.Keys(x.held.groups)) {
		if g := x.held.groups[id]; g.name == name && !used[id] {
			return g
		}
	}
	return nil
}

// add adds the missing rules to a group.
func (x *reconciler) add(ctx context.Context, g *heldGroup, rules map[Rule]bool) error {
	var missing []Rule
	for _, r := range slices.SortedFunc(maps.Keys(rules), Rule.Compare) {
		if len(g.rules[r]) == 0 {
			missing = append(missing, r)
		}
	}
	for part := range slices.Chunk(missing, maxBulk) {
		res, err := x.call(ctx, Op{Kind: CreateRules, ID: g.id, Rules: part})
		if err != nil {
			return err
		}
		for _, r := range res.Rules {
			g.rules[r.Rule] = append(g.rules[r.Rule], r.ID)
		}
		for _, r := range part {
			if len(g.rules[r]) == 0 {
				x.unsure = true
				return fmt.Errorf("security group %s: Neutron created another rule than %s", g.id, r)
			}
		}
	}
	return nil
}

// surplus deletes the rules of a group that it must not have.
func (x *reconciler) surplus(ctx context.Context, g *heldGroup, rules map[Rule]bool) error {
	for _, r := range slices.SortedFunc(maps.Keys(g.rules), Rule.Compare) {
		if rules[r] {
			continue
		}
		for _, id := range g.rules[r] {
			if _, err := x.call(ctx, Op{Kind: DeleteRule, ID: id}); err != nil && !errors.Is(err, ErrGone) {
				return err
			}
		}
		delete(g.rules, r)
	}
	return nil
}

// reusable returns the group whose change into a content takes the fewest calls; nil if a new group
// takes fewer. All ports of such a group want the content.
func (x *reconciler) reusable(key string) (best *heldGroup) {
	taken := map[string]bool{}
	for _, id := range x.ids {
		taken[id] = true
	}
	users, other := map[string]int{}, map[string]bool{}
	for id, p := range x.held.ports {
		for _, g := range x.held.owned(p) {
			users[g]++
			other[g] = other[g] || len(p.Groups) != 1 || x.want.ports[id] != key
		}
	}
	for _, id := range slices.Sorted(maps.Keys(users)) {
		// A new group is created, loses its two rules, is filled and attached; the old one goes.
		limit := 5 + users[id]
		if best != nil {
			limit = x.changes(best, key)
		}
		if g := x.held.groups[id]; !taken[id] && !other[id] && x.changes(g, key) < limit {
			best = g
		}
	}
	return best
}

// changes returns the number of calls that change a group into a content.
func (x *reconciler) changes(g *heldGroup, key string) (calls int) {
	missing := 0
	for r := range x.contents[key] {
		if len(g.rules[r]) == 0 {
			missing++
		}
	}
	calls = (missing + maxBulk - 1) / maxBulk
	for r, ids := range g.rules {
		if !x.contents[key][r] {
			calls += len(ids)
		}
	}
	return calls
}

// manyFailures is how many ports in a row may fail before the rest is left for the next Commit: a
// Neutron that does not answer is not asked about each.
const manyFailures = 3

// ports gives each port its groups.
func (x *reconciler) ports(ctx context.Context) error {
	var errs []error
	failures := 0
	for _, id := range slices.Sorted(maps.Keys(x.want.ports)) {
		p := x.held.ports[id]
		groups, err := x.groupsOf(ctx, p)
		if err != nil {
			return err
		}
		if p.hasExactly(groups) {
			continue
		}
		res, err := x.call(ctx, Op{Kind: SetGroups, ID: id, Groups: groups, Revision: p.Revision})
		switch {
		case errors.Is(err, ErrGone) && !x.want.hasOwner(id):
		case err != nil:
			errs = append(errs, err)
			if failures++; ctx.Err() != nil || failures == manyFailures {
				return errors.Join(errs...)
			}
		default:
			failures = 0
			p.Groups, p.Revision = groups, res.Revision
		}
	}
	return errors.Join(errs...)
}

// groupsOf returns the groups that a port must have. A port whose group could not be made keeps a
// group of ours, or is closed; by having none where not even a group without rules can be made.
func (x *reconciler) groupsOf(ctx context.Context, p *Port) ([]string, error) {
	key := x.want.ports[p.ID]
	switch {
	case key == "":
		return x.r.options.DefaultGroups, nil
	case x.failed[key] == nil:
		return []string{x.ids[key]}, nil
	case len(x.held.owned(p)) > 0:
		return x.held.owned(p), nil
	}
	closed := x.r.closed()
	if _, known := x.want.groups[closed.key]; !known {
		x.want.groups[closed.key] = closed
		x.find()
	}
	if x.ids[closed.key] == "" && !x.full {
		err := x.group(ctx, closed.key)
		if x.full = errors.Is(err, ErrQuota); err != nil && !x.full {
			return nil, err
		}
	}
	if x.full {
		return []string{}, nil
	}
	delete(x.failed, closed.key)
	return []string{x.ids[closed.key]}, nil
}

// collect deletes unused groups and address groups. One that is still in use, for example
// by a port in another network, is left for the next Commit.
func (x *reconciler) collect(ctx context.Context) error {
	if len(x.failed) > 0 {
		return nil
	}
	used := x.used()
	for _, id := range slices.Sorted(maps.Keys(x.held.groups)) {
		if used[id] {
			continue
		}
		if err := x.remove(ctx, Op{Kind: DeleteGroup, ID: id}, func() { delete(x.held.groups, id) }); err != nil {
			return err
		}
	}
	return x.collectAddresses(ctx)
}

func (x *reconciler) collectAddresses(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(x.held.addrs)) {
		name := x.held.addrs[id].Name
		if _, wanted := x.want.addrs[name]; wanted && x.held.names[name] == id {
			continue
		}
		gone := func() {
			delete(x.held.addrs, id)
			if x.held.names[name] == id {
				delete(x.held.names, name)
			}
		}
		if err := x.remove(ctx, Op{Kind: DeleteAddressGroup, ID: id}, gone); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes an object that may be in use or gone.
func (x *reconciler) remove(ctx context.Context, op Op, gone func()) error {
	before := x.unsure
	switch _, err := x.call(ctx, op); {
	case errors.Is(err, ErrInUse):
		x.unsure = before
	case err != nil && !errors.Is(err, ErrGone):
		return err
	default:
		x.unsure = before
		gone()
	}
	return nil
}

// String describes the rule.
func (r Rule) String() string {
	t := fmt.Sprintf("%s IPv%d %s", r.Direction, map[bool]int{false: 4, true: 6}[r.IPv6], r.Protocol)
	if r.First > 0 {
		t += " port " + api.Ports(r.First, r.Last).String()
	}
	switch {
	case r.Remote.IsValid():
		t += " remote " + r.Remote.String()
	case r.AddressGroup != "":
		t += " remote address group " + r.AddressGroup
	}
	if r.Foreign != "" {
		t += " " + r.Foreign
	}
	return t
}
