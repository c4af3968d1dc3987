package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/internal/lib/serve"
)

// Guard says who gets answers.
type Guard struct {
	// Token is the secret of clients; empty where the transport identifies them.
	Token string
	// Hosts are the names under which browsers may reach the page, besides localhost and addresses.
	// A name that an attacker controls could lead to the page's address (DNS rebinding).
	Hosts []string
}

// minToken is how long a token has to be, in characters.
const minToken = 24

// CheckToken returns an error for a token that could be guessed, or that no header can hold.
func CheckToken(token string) error {
	switch {
	case len(token) < minToken:
		return fmt.Errorf("a token of %d characters can be guessed: want at least %d, for example of \"openssl rand -hex 32\"", len(token), minToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("a token has printable ASCII characters only, and no spaces")
	}
	return nil
}

// policy is the Content-Security-Policy of everything that is served.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// public refuses requests under names that are not the page's.
func (g Guard) public(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !g.knows(r.Host) {
			serve.Say(w, http.StatusMisdirectedRequest, "this host name is not one of the page: use localhost or an address\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// private refuses requests of other sites, and without the token.
func (g Guard) private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if IsForeign(r) {
			serve.Say(w, http.StatusForbidden, "a page of another site may not ask\n")
			return
		}
		if !g.admits(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			serve.Say(w, http.StatusUnauthorized, "the token is missing or wrong: open the page with the address that the program printed\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows reports whether the host of a request is one of the page: localhost, an address, or a name
// of Hosts.
func (g Guard) knows(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if _, err := netip.ParseAddr(name); err == nil || strings.EqualFold(name, "localhost") {
		return true
	}
	return name != "" && slices.ContainsFunc(g.Hosts, func(h string) bool { return strings.EqualFold(h, name) })
}

// admits reports whether a request has the token. It takes as long for one that is almost right.
func (g Guard) admits(r *http.Request) bool {
	if g.Token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}

// IsBrowser reports whether a browser's page sent a request.
func IsBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Sec-Fetch-Mode") != ""
}

// IsForeign reports whether a page of another site, or none that is known, sent a request.
func IsForeign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

// pages serves the embedded files.
func pages() http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return http.StripPrefix(strings.TrimSuffix(Path, "/"), http.FileServerFS(files))
}
