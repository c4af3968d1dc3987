package neutron

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/addressgroups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/sluice-net/sluice/renderer/secgroup"
)

// DefaultTimeout is the default of Options.Timeout. Bulk creation of 100 rules takes a second, with
// OVN 20 s.
const DefaultTimeout = time.Minute

// Options configure a Client.
type Options struct {
	// Networks are the IDs of the networks in which pods have ports. If there are none, all ports
	// are read that the project may see. Then addresses must be unique in all of its networks.
	Networks []string
	Timeout  time.Duration // of one call; 0 means DefaultTimeout
	// Observe is called after each call with its method, the first part of its path, and its error.
	// Any goroutine may call it. nil: it is not called.
	Observe func(method, object string, d time.Duration, err error)
}

// Client implements secgroup.API. Any goroutine may use it.
type Client struct {
	connect Connect
	options Options

	mu      sync.Mutex // held while it connects
	service *gophercloud.ServiceClient

	pause atomic.Pointer[time.Time] // until when Neutron asked not to be called; nil: never
}

var _ secgroup.API = (*Client)(nil)

// Connect returns a client of the network service, which it asks Keystone for where there is one.
type Connect func(ctx context.Context) (*gophercloud.ServiceClient, error)

// New returns a client that connects at its first call, and at the next one if that fails.
func New(connect Connect, o Options) *Client {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return &Client{connect: connect, options: o}
}

// ready connects the client.
func (c *Client) ready(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service != nil {
		return nil
	}
	return c.observe(ctx, http.MethodPost, "connection", func(ctx context.Context) (err error) {
		c.service, err = c.connect(ctx)
		return err
	})
}

// MaxPause bounds how long a Client makes no calls because an answer has Retry-After.
const MaxPause = 5 * time.Minute

// observe bounds a call and reports it. It calls nothing while Neutron has asked to wait.
func (c *Client) observe(ctx context.Context, method, object string, call func(context.Context) error) error {
	if until := c.pause.Load(); until != nil && time.Now().Before(*until) {
		return fmt.Errorf("%s %s: not called, for Neutron asked to wait until %s", method, object, until.UTC().Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	begin := time.Now()
	err := errorOf(call(ctx))
	if answer, ok := errors.AsType[*Error](err); ok && answer.RetryAfter > 0 {
		until := time.Now().Add(min(answer.RetryAfter, MaxPause))
		c.pause.Store(&until)
	}
	if c.options.Observe != nil {
		c.options.Observe(method, object, time.Since(begin), err)
	}
	return err
}

// pageSize is how many objects one answer has at most.
const pageSize = 1000

// list reads all objects of a kind, page by page.
func list[T interface{ id() string }](ctx context.Context, c *Client, object string, query url.Values) (all []T, err error) {
	path := strings.ReplaceAll(object, "_", "-")
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		var answer map[string]json.RawMessage
		err = c.observe(ctx, http.MethodGet, path, func(ctx context.Context) error {
			//nolint:bodyclose // Get closes the body when it decodes it
			_, err := c.service.Get(ctx, c.service.ServiceURL(path)+"?"+query.Encode(), &answer, nil)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", path, err)
		}
		var page []T
		if err := json.Unmarshal(answer[object], &page); err != nil {
			return nil, fmt.Errorf("list %s: the answer is not one of Neutron: %w", path, err)
		}
		all = append(all, page...)
		if len(page) == 0 || !strings.Contains(string(answer[object+"_links"]), `"next"`) {
			return all, nil
		}
		query.Set("marker", page[len(page)-1].id())
	}
}

// Inventory implements secgroup.API.
func (c *Client) Inventory(ctx context.Context, prefix string) (*secgroup.Inventory, error) {
	inv := &secgroup.Inventory{}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	sgs, err := list[group](ctx, c, "security_groups", url.Values{"fields": {"id", "name", "security_group_rules"}})
	if err != nil {
		return nil, err
	}
	for _, g := range sgs {
		if strings.HasPrefix(g.Name, prefix) {
			inv.Groups = append(inv.Groups, secgroup.Group{ID: g.ID, Name: g.Name, Rules: installed(g.Rules)})
		}
	}
	addrs, err := list[addressGroup](ctx, c, "address_groups", url.Values{})
	if err != nil && !errors.Is(err, secgroup.ErrGone) { // a Neutron without address groups
		return nil, err
	}
	for _, a := range addrs {
		if strings.HasPrefix(a.Name, prefix) {
			inv.AddressGroups = append(inv.AddressGroups, secgroup.AddressGroup{ID: a.ID, Name: a.Name, Addresses: prefixesOf(a.Addresses)})
		}
	}
	inv.Ports, err = c.Ports(ctx)
	return inv, err
}

// portFields are what Ports reads.
var portFields = []string{
	"id", "name", "network_id", "device_id", "tags", "fixed_ips", "security_groups", "revision_number", "port_security_enabled",
}

// Ports implements secgroup.API.
func (c *Client) Ports(ctx context.Context) (out []secgroup.Port, err error) {
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	networks := slices.Clone(c.options.Networks)
	if len(networks) == 0 {
		networks = []string{""}
	}
	for _, n := range networks {
		query := url.Values{"fields": portFields}
		if n != "" {
			query.Set("network_id", n)
		}
		all, err := list[port](ctx, c, "ports", query)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			out = append(out, p.port())
		}
	}
	return out, nil
}

// Apply implements secgroup.API.
func (c *Client) Apply(ctx context.Context, op secgroup.Op) (res secgroup.Result, err error) {
	if err := c.ready(ctx); err != nil {
		return res, err
	}
	method, object, call := c.call(op, &res)
	if err = c.observe(ctx, method, object, call); err == nil {
		return res, nil
	}
	deletes := op.Kind == secgroup.DeleteGroup || op.Kind == secgroup.DeleteAddressGroup
	var answer *Error
	switch {
	case !errors.As(err, &answer):
	case answer.Type == "OverQuota":
		err = fmt.Errorf("%w: %w", secgroup.ErrQuota, err)
	case answer.Status == http.StatusConflict && deletes:
		err = fmt.Errorf("%w: %w", secgroup.ErrInUse, err)
	case answer.Status == http.StatusNotFound && (op.Kind != secgroup.SetGroups || answer.Type == "PortNotFound"):
		err = fmt.Errorf("%w: %w", secgroup.ErrGone, err)
	}
	return res, err
}

// call returns what executes a change, and fills the result.
func (c *Client) call(op secgroup.Op, res *secgroup.Result) (method, object string, call func(context.Context) error) {
	switch op.Kind {
	case secgroup.CreateGroup:
		return http.MethodPost, "security-groups", func(ctx context.Context) error { return c.createGroup(ctx, op, res) }
	case secgroup.CreateRules:
		return http.MethodPost, "security-group-rules", func(ctx context.Context) error { return c.createRules(ctx, op, res) }
	case secgroup.DeleteRule:
		return http.MethodDelete, "security-group-rules", func(ctx context.Context) error {
			return rules.Delete(ctx, c.service, op.ID).ExtractErr()
		}
	case secgroup.DeleteGroup:
		return http.MethodDelete, "security-groups", func(ctx context.Context) error {
			return groups.Delete(ctx, c.service, op.ID).ExtractErr()
		}
	case secgroup.CreateAddressGroup:
		return http.MethodPost, "address-groups", func(ctx context.Context) error {
			a, err := addressgroups.Create(ctx, c.service, addressgroups.CreateOpts{Name: op.Name, Description: description, Addresses: texts(op.Addresses)}).Extract()
			if err == nil {
				res.ID = a.ID
			}
			return err
		}
	case secgroup.AddAddresses:
		return http.MethodPut, "address-groups", func(ctx context.Context) error {
			_, err := addressgroups.AddAddresses(ctx, c.service, op.ID, addressgroups.UpdateAddressesOpts{Addresses: texts(op.Addresses)}).Extract()
			return err
		}
	case secgroup.RemoveAddresses:
		return http.MethodPut, "address-groups", func(ctx context.Context) error {
			_, err := addressgroups.RemoveAddresses(ctx, c.service, op.ID, addressgroups.UpdateAddressesOpts{Addresses: texts(op.Addresses)}).Extract()
			return err
		}
	case secgroup.DeleteAddressGroup:
		return http.MethodDelete, "address-groups", func(ctx context.Context) error {
			return addressgroups.Delete(ctx, c.service, op.ID).ExtractErr()
		}
	case secgroup.SetGroups:
		return http.MethodPut, "ports", func(ctx context.Context) error {
			p, err := ports.Update(ctx, c.service, op.ID, ports.UpdateOpts{SecurityGroups: &op.Groups, RevisionNumber: &op.Revision}).Extract()
			if err == nil {
				res.Revision = p.RevisionNumber
			}
			return err
		}
	}
	return "", "", func(context.Context) error { return fmt.Errorf("no such call: %d", op.Kind) }
}

// description is that of all objects.
const description = "Made by Sluice from network policies. Do not edit: changes are undone."

func (c *Client) createGroup(ctx context.Context, op secgroup.Op, res *secgroup.Result) error {
	var g group
	err := groups.Create(ctx, c.service, groups.CreateOpts{Name: op.Name, Description: description}).ExtractIntoStructPtr(&g, "security_group")
	if err == nil {
		res.ID, res.Rules = g.ID, installed(g.Rules)
	}
	return err
}

func (c *Client) createRules(ctx context.Context, op secgroup.Op, res *secgroup.Result) error {
	bulk := make([]rules.CreateOpts, len(op.Rules))
	for i, r := range op.Rules {
		bulk[i] = optsOf(op.ID, r)
	}
	var made []rule
	if err := rules.CreateBulk(ctx, c.service, bulk).ExtractIntoSlicePtr(&made, "security_group_rules"); err != nil {
		return err
	}
	res.Rules = installed(made)
	return nil
}

func texts(prefixes []netip.Prefix) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}
	return out
}

func prefixesOf(texts []string) (out []netip.Prefix) {
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
