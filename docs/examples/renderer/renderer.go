package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Renderer enforces policy in a Device. It implements renderer.Renderer.
type Renderer struct {
	device    Device
	pods      map[api.PodID]renderer.PodConfig // desired
	sets      map[api.SetID]map[netip.Prefix]struct{}
	users     map[api.SetID]map[api.PodID]struct{} // the pods whose lists name a set
	installed map[api.PodID]Table                  // as the device acknowledged it; nil until it was read
	changed   map[api.PodID]struct{}               // pods whose table may be another one
}

// New returns a renderer for a device. It calls the device in Apply only.
func New(d Device) *Renderer {
	return &Renderer{
		device: d, pods: map[api.PodID]renderer.PodConfig{}, sets: map[api.SetID]map[netip.Prefix]struct{}{},
		users: map[api.SetID]map[api.PodID]struct{}{}, changed: map[api.PodID]struct{}{},
	}
}

// Name identifies the renderer in status, metrics and logs.
func (r *Renderer) Name() string { return "device" }

// Apply takes changes over and makes the device have them.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	if c.Resync {
		r.forget()
	}
	for id, s := range c.AllSets() {
		r.updateSet(id, s.Added, s.Removed)
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			r.remove(pod)
		} else {
			r.render(pod, *cfg)
		}
	}
	return r.install(ctx)
}

// forget begins a resync: what is not named again is removed.
func (r *Renderer) forget() {
	for pod := range r.pods {
		r.remove(pod)
	}
	clear(r.sets)
}

func (r *Renderer) render(pod api.PodID, cfg renderer.PodConfig) {
	r.remove(pod)
	r.pods[pod] = cfg
	for id := range setsOf(cfg) {
		if r.users[id] == nil {
			r.users[id] = map[api.PodID]struct{}{}
		}
		r.users[id][pod] = struct{}{}
	}
}

func (r *Renderer) remove(pod api.PodID) {
	r.changed[pod] = struct{}{}
	for id := range setsOf(r.pods[pod]) {
		if delete(r.users[id], pod); len(r.users[id]) == 0 {
			delete(r.users, id)
		}
	}
	delete(r.pods, pod)
}

func (r *Renderer) updateSet(id api.SetID, added, removed []netip.Prefix) {
	if r.sets[id] == nil {
		r.sets[id] = map[netip.Prefix]struct{}{}
	}
	for _, p := range removed {
		delete(r.sets[id], p)
	}
	for _, p := range added {
		r.sets[id][p] = struct{}{}
	}
	if len(r.sets[id]) == 0 {
		delete(r.sets, id)
	}
	maps.Copy(r.changed, r.users[id])
}

// setsOf returns the sets that the lists of a pod name.
func setsOf(cfg renderer.PodConfig) map[api.SetID]struct{} {
	out := map[api.SetID]struct{}{}
	for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} {
		if l == nil {
			continue
		}
		for _, c := range l.Rules() {
			for _, net := range []api.Net{c.Src, c.Dst} {
				if net.Set != 0 {
					out[net.Set] = struct{}{}
				}
			}
		}
	}
	return out
}

// install makes the device have what is desired of the pods that changed. What fails stays changed,
// so that the next Apply tries it again.
func (r *Renderer) install(ctx context.Context) error {
	if err := r.read(); err != nil {
		return err
	}
	var errs []error
	for _, pod := range slices.SortedFunc(maps.Keys(r.changed), api.PodID.Compare) {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := r.installPod(pod); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", pod, err))
			continue
		}
		delete(r.changed, pod)
	}
	return errors.Join(errs...)
}

// installPod does nothing where the device has the table already.
func (r *Renderer) installPod(pod api.PodID) error {
	cfg, desired := r.pods[pod]
	was, there := r.installed[pod]
	switch {
	case desired:
		t := r.table(cfg)
		if there && t.equal(was) {
			return nil
		}
		if err := r.device.Put(pod, t); err != nil {
			return err
		}
		r.installed[pod] = t
	case there:
		if err := r.device.Delete(pod); err != nil {
			return err
		}
		delete(r.installed, pod)
	}
	return nil
}

// read learns what an earlier run has installed. All of it counts as changed.
func (r *Renderer) read() error {
	if r.installed != nil {
		return nil
	}
	tables, err := r.device.Tables()
	if err != nil {
		return fmt.Errorf("read the device: %w", err)
	}
	r.installed = tables
	for pod := range tables {
		r.changed[pod] = struct{}{}
	}
	return nil
}
