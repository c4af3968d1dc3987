package expr

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/internal/view"
)

// ParseQuestion reads SRC and DST[:PORT][/PROTO].
func ParseQuestion(src, dst string) (view.Question, error) {
	q := view.Question{Src: unbracketed(src)}
	if q.Src == "" {
		return q, errors.New("the source is empty: want a pod, a selector or an address")
	}
	rest, proto, err := cutProtocol(dst)
	if err != nil {
		return q, err
	}
	q.Protocol = proto
	q.Dst, q.Port = cutPort(rest)
	if _, _, ok := services.ParseName(q.Dst); ok && rest == dst {
		q.Protocol = api.AnyProtocol // that of the port
	}
	switch {
	case q.Dst == "":
		return q, errors.New("the destination is empty: want DST[:PORT][/PROTO], for example shop/web-0:8080/tcp")
	case strings.ContainsAny(q.Port, "/[] "):
		return q, fmt.Errorf("%q is neither the number nor the name of a port", q.Port)
	case q.Port == "" && strings.HasPrefix(q.Dst, "svc/") && proto.HasPorts():
		return q, fmt.Errorf("%q has no port: want its number or name, for example %s:80 or %s:http", dst, q.Dst, q.Dst)
	case q.Port == "" && proto.HasPorts():
		return q, withoutPort(dst, q.Dst, proto)
	case q.Port != "" && !proto.HasPorts():
		return q, fmt.Errorf("%q has a port, but %s has none: want %s/%s", dst, proto, q.Dst, proto)
	}
	return q, nil
}

// withoutPort says what is missing. The last part of an IPv6 address may have been meant as a port.
func withoutPort(dst, host string, proto api.Protocol) error {
	err := fmt.Errorf("%q has no port: want for example %s:8080/%s, or %s/icmp", dst, bracketed(host), proto, host)
	i := strings.LastIndexByte(host, ':')
	if i < 0 || !isAddr(host[:i]) {
		return err
	}
	return fmt.Errorf("%w; where %s is the port, %s:%s/%s", err, host[i+1:], bracketed(host[:i]), host[i+1:], proto)
}

// cutProtocol splits "/tcp" from the end. The text after the last slash is the protocol only if it
// is the name of one, and if the text before it can be a whole destination, so that "shop/tcp" is a
// pod.
func cutProtocol(dst string) (string, api.Protocol, error) {
	i := strings.LastIndexByte(dst, '/')
	if i < 0 || !strings.ContainsAny(dst[:i], ":/=(") && !isAddr(dst[:i]) {
		return dst, api.TCP, nil
	}
	proto, err := api.ParseProtocol(dst[i+1:])
	if err != nil {
		if strings.Contains(dst[:i], ":") && !isAddr(dst) {
			return "", 0, err
		}
		return dst, api.TCP, nil
	}
	if proto == api.AnyProtocol {
		return "", 0, errors.New("a packet has one protocol: want tcp, udp, sctp, icmp or a number")
	}
	return dst[:i], proto, nil
}

// cutPort splits ":PORT" from the end; the colons of an IPv6 address are its own.
func cutPort(dst string) (host, port string) {
	i := strings.LastIndexByte(dst, ':')
	if i < 0 || isAddr(dst) || strings.HasSuffix(dst, "]") {
		return unbracketed(dst), ""
	}
	return unbracketed(dst[:i]), dst[i+1:]
}

// unbracketed takes the brackets from an IPv6 address.
func unbracketed(s string) string {
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]")
	}
	return s
}

// bracketed puts an IPv6 address into brackets, so that a port can follow.
func bracketed(s string) string {
	if strings.Contains(s, ":") && isAddr(s) {
		return "[" + s + "]"
	}
	return s
}

func isAddr(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}
