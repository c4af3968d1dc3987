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

// reconciler executes one Apply: it compares what is wanted with what is held, and makes the calls
// that remove the difference.
type reconciler struct {
	r        *Renderer
	existing *held
	want     *wanted
	drifts   bool // differences come from others
	unsure   bool // what is held may differ from what Neutron has
	full     bool // the quota leaves no group without rules

	ids      map[string]string        // IDs of groups, by key of the content
	contents map[string]map[Rule]bool // of the groups by key, with IDs of address groups
	failed   map[string]error         // groups that could not be made, by key
	changing map[string]bool          // names of address groups that change in place
}

// all makes all calls, in an order in which every port permits at any time what its old or its new
// rules permit: first ports get the groups that name no changing address group, then these groups
// change, then the other ports get theirs, and what is no longer used goes.
func (x *reconciler) all(ctx context.Context) error {
	x.ids, x.contents, x.failed = map[string]string{}, map[string]map[Rule]bool{}, map[string]error{}
	for _, step := range []func(context.Context) error{
		x.replace, x.create,
		func(ctx context.Context) error { return x.assign(ctx, false) },
		x.extend, x.shrink,
		func(ctx context.Context) error { return x.assign(ctx, true) },
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

// assign makes the groups of a phase, and gives them to their ports.
func (x *reconciler) assign(ctx context.Context, late bool) error {
	if err := x.groups(ctx, late); err != nil {
		return err
	}
	return x.ports(ctx, late)
}

// late reports whether a group can be made and attached only when address groups have changed.
func (x *reconciler) late(key string) bool {
	c := x.want.groups[key]
	if c == nil {
		return false
	}
	for name := range c.addrs {
		if x.changing[name] {
			return true
		}
	}
	return false
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

// replace finds the address groups that change. One that a port names until it gets a group that
// waits for changes is replaced by a new one: its change would mix old rules with new addresses.
// Where the quota leaves no room, it changes in place.
func (x *reconciler) replace(ctx context.Context) error {
	x.changing = map[string]bool{}
	for name := range x.want.addrs {
		if a := x.existing.addrs[x.existing.names[name]]; a != nil && !x.equal(a) {
			x.changing[name] = true
		}
	}
	kept := map[string]bool{}
	for {
		mixed := x.mixed(kept)
		if len(mixed) == 0 {
			return nil
		}
		for _, name := range mixed {
			switch err := x.createOne(ctx, name); {
			case errors.Is(err, ErrQuota):
				kept[name] = true
			case err != nil:
				return err
			default:
				delete(x.changing, name)
			}
		}
	}
}

// equal reports whether a group has the addresses that it must have.
func (x *reconciler) equal(a *AddressGroup) bool {
	addrs := x.want.addrs[a.Name]
	return len(minus(addrs, a.Addresses))+len(minus(a.Addresses, addrs)) == 0
}

// mixed returns the names of changing address groups that ports name until they get a group that
// waits for changes, without those in kept.
func (x *reconciler) mixed(kept map[string]bool) []string {
	found, waiting := map[string]bool{}, map[string]map[Rule]bool{}
	for key, c := range x.want.groups {
		if x.late(key) {
			waiting[key] = x.resolve(c)
		}
	}
	for id, key := range x.want.ports {
		p := x.existing.ports[id]
		rules, waits := waiting[key]
		owned := x.existing.owned(p)
		if !waits || rules != nil && len(p.Groups) == 1 && len(owned) == 1 && x.existing.groups[owned[0]].holds(rules) {
			continue
		}
		for _, g := range owned {
			for rule := range x.existing.groups[g].rules {
				a := x.existing.addrs[rule.AddressGroup]
				if a != nil && x.changing[a.Name] && x.existing.names[a.Name] == a.ID && !kept[a.Name] {
					found[a.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// create creates the address groups that do not exist.
func (x *reconciler) create(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(x.want.addrs)) {
		if x.existing.addrs[x.existing.names[name]] == nil {
			if err := x.createOne(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// createOne creates an address group with all its addresses, or takes another one that has exactly
// these: an Apply that failed may have left it.
func (x *reconciler) createOne(ctx context.Context, name string) error {
	addrs := x.want.addrs[name]
	for _, id := range slices.Sorted(maps.Keys(x.existing.addrs)) {
		if a := x.existing.addrs[id]; a.Name == name && x.equal(a) {
			x.existing.names[name] = id
			return nil
		}
	}
	first := addrs[:min(maxAddresses, len(addrs))]
	res, err := x.call(ctx, Op{Kind: CreateAddressGroup, Name: name, Addresses: first})
	if err != nil {
		return err
	}
	a := &AddressGroup{ID: res.ID, Name: name, Addresses: slices.Clone(first)}
	x.existing.addrs[a.ID], x.existing.names[name] = a, a.ID
	return x.addAddresses(ctx, a)
}

// addAddresses adds the addresses that a group lacks.
func (x *reconciler) addAddresses(ctx context.Context, a *AddressGroup) error {
	for part := range slices.Chunk(minus(x.want.addrs[a.Name], a.Addresses), maxAddresses) {
		if _, err := x.call(ctx, Op{Kind: AddAddresses, ID: a.ID, Addresses: part}); err != nil {
			return err
		}
		a.Addresses = append(a.Addresses, part...)
	}
	return nil
}

// extend adds the missing addresses to the groups that change.
func (x *reconciler) extend(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(x.changing)) {
		if err := x.addAddresses(ctx, x.existing.addrs[x.existing.names[name]]); err != nil {
			return err
		}
	}
	return nil
}

// shrink removes addresses that are no longer wanted from the groups that change.
func (x *reconciler) shrink(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(x.changing)) {
		if err := x.removeAddresses(ctx, x.existing.addrs[x.existing.names[name]]); err != nil {
			return err
		}
	}
	return nil
}

// removeAddresses removes the addresses of a group that it must not have.
func (x *reconciler) removeAddresses(ctx context.Context, a *AddressGroup) error {
	for part := range slices.Chunk(minus(a.Addresses, x.want.addrs[a.Name]), maxAddresses) {
		if _, err := x.call(ctx, Op{Kind: RemoveAddresses, ID: a.ID, Addresses: part}); err != nil {
			return err
		}
		a.Addresses = minus(a.Addresses, part)
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

// resolve returns the rules of a content with the IDs of address groups; nil if one does not exist.
func (x *reconciler) resolve(c *content) map[Rule]bool {
	out := make(map[Rule]bool, len(c.rules))
	for rule := range c.rules {
		if rule.AddressGroup != "" {
			if rule.AddressGroup = x.existing.names[rule.AddressGroup]; rule.AddressGroup == "" {
				return nil
			}
		}
		out[rule] = true
	}
	return out
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

// groups finds or makes a group for each content of a phase.
func (x *reconciler) groups(ctx context.Context, late bool) error {
	x.find()
	for _, key := range slices.Sorted(maps.Keys(x.want.groups)) {
		if x.ids[key] != "" || x.late(key) != late {
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
		x.contents[key] = x.resolve(c)
		byKey[digest(slices.SortedFunc(maps.Keys(x.contents[key]), Rule.Compare))] = key
	}
	for _, id := range slices.Sorted(maps.Keys(x.existing.groups)) {
		key, ok := byKey[digest(slices.SortedFunc(maps.Keys(x.existing.groups[id].rules), Rule.Compare))]
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
		g = x.existing.group(res.ID, name, res.Rules)
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
	for _, p := range x.existing.ports {
		for _, id := range p.Groups {
			used[id] = true
		}
	}
	return used
}

// unfinished returns the group that an earlier Apply began for the same content and that no port
// has; nil if there is none. So calls that take longer than their time do not begin anew for ever.
func (x *reconciler) unfinished(name string) *heldGroup {
	used := x.used()
	for _, id := range slices.Sorted(maps.Keys(x.existing.groups)) {
		if g := x.existing.groups[id]; g.name == name && !used[id] {
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
	for id, p := range x.existing.ports {
		for _, g := range x.existing.owned(p) {
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
		if g := x.existing.groups[id]; !taken[id] && !other[id] && x.changes(g, key) < limit {
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

// manyFailures is how many ports in a row may fail before the rest is left for the next Apply: a
// Neutron that does not answer is not asked about each.
const manyFailures = 3

// ports gives each port of a phase its groups.
func (x *reconciler) ports(ctx context.Context, late bool) error {
	var errs []error
	failures := 0
	for _, id := range slices.Sorted(maps.Keys(x.want.ports)) {
		if x.late(x.want.ports[id]) != late {
			continue
		}
		p := x.existing.ports[id]
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
	case len(x.existing.owned(p)) > 0:
		return x.existing.owned(p), nil
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
// by a port in another network, is left for the next Apply. Ports that keep old groups need them;
// their address groups lose what no pod's rules name.
func (x *reconciler) collect(ctx context.Context) error {
	if len(x.failed) > 0 {
		return x.shrinkReplaced(ctx)
	}
	used := x.used()
	for _, id := range slices.Sorted(maps.Keys(x.existing.groups)) {
		if used[id] {
			continue
		}
		if err := x.remove(ctx, Op{Kind: DeleteGroup, ID: id}, func() { delete(x.existing.groups, id) }); err != nil {
			return err
		}
	}
	return x.collectAddresses(ctx)
}

// shrinkReplaced removes addresses from address groups that others of their name replace.
func (x *reconciler) shrinkReplaced(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(x.existing.addrs)) {
		a := x.existing.addrs[id]
		if _, wanted := x.want.addrs[a.Name]; wanted {
			if err := x.removeAddresses(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *reconciler) collectAddresses(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(x.existing.addrs)) {
		name := x.existing.addrs[id].Name
		if _, wanted := x.want.addrs[name]; wanted && x.existing.names[name] == id {
			continue
		}
		gone := func() {
			delete(x.existing.addrs, id)
			if x.existing.names[name] == id {
				delete(x.existing.names, name)
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
