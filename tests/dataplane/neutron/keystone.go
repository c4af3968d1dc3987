package neutron

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
)

// Keystone is an identity service, and an API of a Server's Neutron that asks it. Roles have the
// rights that Neutron will give them by default: readers change nothing.
type Keystone struct {
	URL     string                     // of the identity service, with its version
	Neutron string                     // ends with a slash
	Admin   *gophercloud.ServiceClient // of the identity service

	dir string
}

const (
	region = "here"
	secret = "not-in-errors" // of all users
)

// MissingKeystone returns why this machine cannot run a Keystone; nil: it can.
func MissingKeystone() error {
	for _, program := range []string{"keystone-manage", "keystone-wsgi-public"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("no %s: install keystone", program)
		}
	}
	return nil
}

// StartKeystone starts both. They end with the Server.
func (s *Server) StartKeystone(ctx context.Context) (*Keystone, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	k := &Keystone{URL: fmt.Sprintf("http://127.0.0.1:%d/v3", port), dir: filepath.Join(s.dir, "keystone")}
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		return nil, err
	}
	conf := filepath.Join(k.dir, "keystone.conf")
	text := fmt.Sprintf("[database]\nconnection = sqlite:///%[1]s/db\n[token]\nprovider = fernet\n[fernet_tokens]\nkey_repository = %[1]s/fernet\n"+
		"[credential]\nkey_repository = %[1]s/credential\n[cache]\nenabled = false\n", k.dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	root := []string{"--keystone-user", "root", "--keystone-group", "root"}
	for _, step := range [][]string{
		{"db_sync"}, append([]string{"fernet_setup"}, root...), append([]string{"credential_setup"}, root...),
		{"bootstrap", "--bootstrap-password", secret, "--bootstrap-region-id", region, "--bootstrap-public-url", k.URL},
	} {
		if err := s.run(ctx, "keystone-manage", append([]string{"--config-file", conf}, step...)...); err != nil {
			return nil, err
		}
	}
	if err := s.start(ctx, "keystone-wsgi-public", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--", "--config-file", conf); err != nil {
		return nil, err
	}
	if err := until(ctx, k.URL, func() error { return answers(ctx, k.URL) }); err != nil {
		return nil, err
	}
	k.Neutron, err = s.serve(ctx, "auth_strategy = keystone", fmt.Sprintf(`[keystone_authtoken]
www_authenticate_uri = %[1]s
auth_url = %[1]s
auth_type = password
username = admin
password = %[2]s
project_name = admin
user_domain_id = default
project_domain_id = default
interface = public
token_cache_time = -1
[oslo_policy]
enforce_new_defaults = true
`, k.URL, secret), false)
	if err != nil {
		return nil, err
	}
	if err := until(ctx, k.Neutron, func() error { return answers(ctx, k.Neutron) }); err != nil {
		return nil, err
	}
	return k, k.catalog(ctx)
}

// catalog logs in and tells where Neutron is.
func (k *Keystone) catalog(ctx context.Context) error {
	provider, err := openstack.AuthenticatedClient(ctx, gophercloud.AuthOptions{
		IdentityEndpoint: k.URL, Username: "admin", Password: secret, DomainID: "default", Scope: &gophercloud.AuthScope{ProjectName: "admin", DomainID: "default"},
	})
	if err != nil {
		return err
	}
	if k.Admin, err = openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{Region: region}); err != nil {
		return err
	}
	service, err := services.Create(ctx, k.Admin, services.CreateOpts{Type: "network", Extra: map[string]any{"name": "neutron"}}).Extract()
	if err != nil {
		return err
	}
	_, err = endpoints.Create(ctx, k.Admin, endpoints.CreateOpts{
		Availability: gophercloud.AvailabilityPublic, Name: "neutron", Region: region, URL: k.Neutron, ServiceID: service.ID,
	}).Extract()
	return err
}

// Project makes a project, and returns its ID.
func (k *Keystone) Project(ctx context.Context, name string) (string, error) {
	p, err := projects.Create(ctx, k.Admin, projects.CreateOpts{Name: name, DomainID: "default"}).Extract()
	if err != nil {
		return "", err
	}
	return p.ID, nil
}

// Cloud makes a user with a role in a project, and an application credential of that user. It
// returns the path of a clouds.yaml whose only cloud, "prod", has the credential.
func (k *Keystone) Cloud(ctx context.Context, project, role string) (string, error) {
	u, err := users.Create(ctx, k.Admin, users.CreateOpts{Name: role + "-of-" + project, DomainID: "default", DefaultProjectID: project, Password: secret}).Extract()
	if err != nil {
		return "", err
	}
	pages, err := roles.List(k.Admin, roles.ListOpts{Name: role}).AllPages(ctx)
	if err != nil {
		return "", err
	}
	found, err := roles.ExtractRoles(pages)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("there are %d roles %s: %w", len(found), role, err)
	}
	if err := roles.Assign(ctx, k.Admin, found[0].ID, roles.AssignOpts{UserID: u.ID, ProjectID: project}).ExtractErr(); err != nil {
		return "", err
	}
	provider, err := openstack.AuthenticatedClient(ctx, gophercloud.AuthOptions{
		IdentityEndpoint: k.URL, UserID: u.ID, Password: secret, Scope: &gophercloud.AuthScope{ProjectID: project},
	})
	if err != nil {
		return "", err
	}
	own, err := openstack.NewIdentityV3(provider, gophercloud.EndpointOpts{Region: region})
	if err != nil {
		return "", err
	}
	c, err := applicationcredentials.Create(ctx, own, u.ID, applicationcredentials.CreateOpts{Name: "sluice", Secret: secret}).Extract()
	if err != nil {
		return "", err
	}
	path := filepath.Join(k.dir, u.ID+".yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, "clouds:\n  prod:\n    auth_type: v3applicationcredential\n    region_name: %s\n"+
		"    auth: {auth_url: %q, application_credential_id: %s, application_credential_secret: %s}\n", region, k.URL, c.ID, secret), 0o600)
}

// Revoke makes a token invalid.
func (k *Keystone) Revoke(ctx context.Context, token string) error {
	res, err := k.Admin.Request(ctx, http.MethodDelete, k.URL+"/auth/tokens", &gophercloud.RequestOpts{
		MoreHeaders: map[string]string{"X-Subject-Token": token}, OkCodes: []int{http.StatusNoContent},
	})
	if err != nil {
		return err
	}
	return res.Body.Close()
}
