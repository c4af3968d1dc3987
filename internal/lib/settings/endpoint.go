package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bracketed returns an endpoint with the brackets that an IPv6 address needs before its port.
// Variables of Kubernetes, from which manifests make endpoints, have none.
func Bracketed(endpoint string) string {
	_, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		rest = endpoint
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return endpoint
	}
	if a, err := netip.ParseAddr(rest[:i]); err != nil || !a.Is6() {
		return endpoint
	}
	return strings.TrimSuffix(endpoint, rest) + net.JoinHostPort(rest[:i], rest[i+1:])
}

// endpointForms are the valid forms of an item of --etcd-endpoints.
const endpointForms = "want host:port, http://host:port or https://host:port"

// checkEndpoints refuses invalid endpoints. The etcd client would accept them and retry forever.
func checkEndpoints(endpoints []string) error {
	if len(endpoints) == 0 {
		return fmt.Errorf("--etcd-endpoints is empty: %s", endpointForms)
	}
	for _, e := range endpoints {
		if why := endpointProblem(e); why != "" {
			return fmt.Errorf("--etcd-endpoints %q: %s; %s", e, why, endpointForms)
		}
	}
	return nil
}

// endpointProblem returns what is wrong with an endpoint, empty when nothing is.
func endpointProblem(endpoint string) string {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case !ok:
		return hostPortProblem(endpoint)
	case slices.Contains([]string{"unix", "unixs"}, scheme):
		if rest == "" {
			return "the path of the socket is missing"
		}
		return ""
	case !slices.Contains([]string{"http", "https"}, scheme):
		return fmt.Sprintf("unknown scheme %q", scheme)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return strings.TrimPrefix(err.Error(), fmt.Sprintf("parse %q: ", endpoint))
	case u.User != nil:
		return "it has a user, which is --etcd-user"
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "something follows the port"
	}
	return hostPortProblem(u.Host)
}

func hostPortProblem(text string) string {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		why := err.Error()
		if e, ok := errors.AsType[*net.AddrError](err); ok {
			why = e.Err
		}
		return why
	}
	if host == "" {
		return "the host is missing"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("port %q is not a number from 1 to 65535", port)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '@' }) {
		return fmt.Sprintf("%q is not the name of a host", host)
	}
	return ""
}
