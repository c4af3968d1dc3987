package neutron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
)

// keystone is started by the first test that needs it.
var keystone *Keystone

func needKeystone(t *testing.T) (*Server, *Keystone) {
	t.Helper()
	s := need(t, false)
	if err := MissingKeystone(); err != nil {
		t.Skip(err)
	}
	if keystone == nil {
		k, err := s.StartKeystone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keystone = k
	}
	return s, keystone
}

// inProject is a fixture in a project of its own, and the clouds.yaml of a user with a role in it.
func inProject(t *testing.T, role string) (f *fixture, k *Keystone, clouds string) {
	t.Helper()
	s, k := needKeystone(t)
	project, err := k.Project(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if clouds, err = k.Cloud(t.Context(), project, role); err != nil {
		t.Fatal(err)
	}
	return newFixtureIn(t, s, secgroup.Options{}, project, neutron.Cloud(clouds, "prod")), k, clouds
}

// TestKeystoneLogsSluiceIn by an application credential, and again when its token has become
// invalid.
func TestKeystoneLogsSluiceIn(t *testing.T) {
	f, k, clouds := inProject(t, "member")
	var session *gophercloud.ServiceClient
	logins := 0
	f.options.API = neutron.New(func(ctx context.Context) (c *gophercloud.ServiceClient, err error) {
		logins++
		session, err = neutron.Cloud(clouds, "prod")(ctx)
		return session, err
	}, neutron.Options{Networks: []string{f.network}})
	f.restart()
	f.must(f.commit(true, village(), villageSets()))
	f.check(probes())
	old := session.Token()
	f.must(k.Revoke(t.Context(), old))
	pods := village()
	pods[db] = renderer.PodConfig{IPs: dbAt, Egress: lists()}
	f.must(f.commit(false, pods, nil))
	f.check(map[api.Flow]bool{flow(clientAt[0], dbAt[0], api.TCP, 5432): false, flow(clientAt[0], webAt[0], api.TCP, 80): true})
	if session.Token() == old || logins != 1 {
		t.Errorf("a token that was revoked is used again, or a new client was made: %d", logins)
	}
}

// TestKeystoneRefusals: nothing is changed by who may not change it, and errors say what is wrong
// but no secret.
func TestKeystoneRefusals(t *testing.T) {
	f, k, clouds := inProject(t, "reader")
	text, err := os.ReadFile(clouds)
	f.must(err)
	write := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "clouds.yaml")
		f.must(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for pod := range maps.Values(village()) {
		f.port(pod.IPs...)
	}
	before := f.portGroups()
	for name, c := range map[string]struct{ file, cloud, want string }{
		"a reader":             {clouds, "prod", "403"},
		"a wrong secret":       {write(strings.Replace(string(text), secret, "another", 1)), "prod", "401"},
		"no such cloud":        {clouds, "staging", "staging"},
		"no file":              {filepath.Join(t.TempDir(), "none"), "prod", "clouds.yaml"},
		"no Keystone":          {write(strings.Replace(string(text), k.URL, "http://127.0.0.1:1/v3", 1)), "prod", "refused"},
		"a region without one": {write(strings.Replace(string(text), "region_name: "+region, "region_name: there", 1)), "prod", "endpoint"},
	} {
		f.options.API = neutron.New(neutron.Cloud(c.file, c.cloud), neutron.Options{Networks: []string{f.network}})
		f.restart()
		err := f.commit(true, village(), villageSets())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) || len(err.Error()) > 1500 {
			t.Errorf("%s: %.2000v; want %q, and no secret", name, err, c.want)
		}
	}
	if after := f.portGroups(); !maps.Equal(before, after) {
		t.Errorf("groups of ports were %v, are %v", before, after)
	}
	// With rights it catches up.
	file, err := k.Cloud(t.Context(), f.project, "member")
	f.must(err)
	f.options.API = neutron.New(neutron.Cloud(file, "prod"), neutron.Options{Networks: []string{f.network}})
	f.restart()
	f.must(f.commit(true, village(), villageSets()))
	f.check(probes())
}

// portGroups returns the groups of each port, as text.
func (f *fixture) portGroups() map[string]string {
	f.t.Helper()
	all, err := neutron.New(neutron.NoAuth(f.s.URL, http.DefaultTransport), neutron.Options{Networks: []string{f.network}}).Ports(f.t.Context())
	f.must(err)
	out := map[string]string{}
	for _, p := range all {
		out[p.ID] = fmt.Sprint(p.Groups)
	}
	return out
}

// TestKeystoneQuotaOfTheProject: a pod without a group of Sluice is closed, one with a group keeps
// it, and the error says that it is the quota.
func TestKeystoneQuotaOfTheProject(t *testing.T) {
	f, _, _ := inProject(t, "member")
	open := func(port uint16) renderer.PodConfig {
		return renderer.PodConfig{IPs: webAt, Egress: lists(tcp(api.Permit, api.SetNet(clients), api.Port(port)))}
	}
	f.must(f.commit(true, map[api.PodID]renderer.PodConfig{web: open(80)}, villageSets()))
	has := 4 // of the project's default group
	for _, g := range f.own() {
		has += len(g.Rules)
	}
	limit := func(n int) {
		t.Helper()
		_, err := quotas.Update(t.Context(), f.admin, f.project, quotas.UpdateOpts{SecurityGroupRule: &n}).Extract()
		f.must(err)
	}
	const closed = 2 // rules that a group has when it is created
	limit(has + closed)
	wide := renderer.PodConfig{IPs: dbAt, Egress: lists(tcp(api.Permit, api.SetNet(clients), api.Port(1)), tcp(api.Permit, api.SetNet(clients), api.Port(3)), tcp(api.Permit, api.SetNet(clients), api.Port(5)))}
	err := f.commit(false, map[api.PodID]renderer.PodConfig{db: wide}, nil)
	if !errors.Is(err, secgroup.ErrQuota) {
		t.Errorf("the error is %v, want that of the quota", err)
	}
	f.check(map[api.Flow]bool{
		flow(clientAt[0], webAt[0], api.TCP, 80): true, flow(clientAt[0], dbAt[0], api.TCP, 1): false, flow(clientAt[0], dbAt[0], api.TCP, 99): false,
	})
	limit(-1)
	f.must(f.commit(false, nil, nil))
	f.check(map[api.Flow]bool{flow(clientAt[0], dbAt[0], api.TCP, 1): true, flow(clientAt[0], dbAt[0], api.TCP, 2): false})
}

// TestKeystoneDaemon: sluice-neutron logs in by clouds.yaml, and enforces.
func TestKeystoneDaemon(t *testing.T) {
	f, _, clouds := inProject(t, "member")
	store, err := embedded.Start(t.Context(), embedded.Config{ClientURL: "http://127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	f.must(err)
	defer func() { f.must(store.Close()) }()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	f.must(os.WriteFile(filepath.Join(dir, "shop.yaml"), fmt.Appendf(nil, shop, 80), 0o600))
	_, err = manifests.NewDirectory(dir, reflect.NewReflector(store.Client(), model.DefaultPrefix, log), log, nil).Sync(t.Context())
	f.must(err)
	f.port(webAt[0])
	f.port(clientAt[0])
	r := startReplica(t, f, fmt.Sprint(store.Endpoints()[0]), "only", "--os-cloud", "prod", "--os-clouds-file", clouds)
	wait(t, "port 80 alone is open", func() bool {
		held := f.held()
		return held.Passes(flow(clientAt[0], webAt[0], api.TCP, 80)) && !held.Passes(flow(clientAt[0], webAt[0], api.TCP, 81))
	})
	if err := r.end(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if strings.Contains(r.log.String(), secret) {
		t.Error("the log has the secret")
	}
}
