package neutron

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
)

// Cloud connects by a clouds.yaml. file is its path; empty: where OpenStack's clients look for it.
// name is that of the cloud in it; empty: the environment variable OS_CLOUD. Passwords and
// application credentials are read there. A token that expires is renewed.
func Cloud(file, name string) Connect {
	return func(ctx context.Context) (*gophercloud.ServiceClient, error) {
		var options []clouds.ParseOption
		if name != "" {
			options = append(options, clouds.WithCloudName(name))
		}
		if file != "" {
			options = append(options, clouds.WithLocations(file))
		}
		auth, endpoint, tls, err := clouds.Parse(options...)
		if err != nil {
			return nil, fmt.Errorf("read clouds.yaml: %w", err)
		}
		auth.AllowReauth = true
		provider, err := config.NewProviderClient(ctx, auth, config.WithTLSConfig(tls))
		if err != nil {
			return nil, fmt.Errorf("log in to Keystone: %w", errorOf(err))
		}
		return openstack.NewNetworkV2(provider, endpoint)
	}
}

// NoAuth connects to a Neutron without Keystone. url is that of the network service, without a
// version.
func NoAuth(url string, transport http.RoundTripper) Connect {
	url = strings.TrimRight(url, "/") + "/"
	return func(context.Context) (*gophercloud.ServiceClient, error) {
		p := &gophercloud.ProviderClient{TokenID: "noauth", HTTPClient: http.Client{Transport: transport}}
		return &gophercloud.ServiceClient{ProviderClient: p, Endpoint: url, ResourceBase: url + "v2.0/", Type: "network"}, nil
	}
}
