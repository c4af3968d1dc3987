// Command agnhost replaces the upstream suites' agnhost where the kernel has no SCTP. It sets up
// associations of SCTP by itself, on raw sockets, for "connect --protocol=sctp" and for the servers
// of "porter"; the real agnhost, in the same folder, does everything else. What is sent is SCTP
// (RFC 9260, section 5.1), so policies and translation see what they see of a kernel's.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// realProgram is the agnhost that does what is no SCTP.
const realProgram = "/agnhost.real"

// serverPrefix is how the names of variables begin that ask porter for a server.
const serverPrefix = "SERVE_SCTP_PORT_"

func main() {
	args := os.Args[1:]
	switch {
	case len(args) > 1 && args[0] == "connect" && option(args, "protocol", "") == "sctp":
		os.Exit(connect(args[1:]))
	case len(args) > 0 && args[0] == "porter":
		for _, v := range os.Environ() {
			if port, ok := strings.CutPrefix(v, serverPrefix); ok {
				port, _, _ = strings.Cut(port, "=")
				if err := listen(port); err != nil {
					fmt.Fprintln(os.Stderr, "SCTP:", err)
					os.Exit(1)
				}
			}
		}
		if others(os.Environ()) == 0 {
			select {}
		}
	}
	err := syscall.Exec(realProgram, append([]string{realProgram}, args...), os.Environ())
	fmt.Fprintln(os.Stderr, realProgram, err)
	os.Exit(1)
}

// others counts the servers that are not of SCTP.
func others(env []string) (n int) {
	for _, v := range env {
		if strings.HasPrefix(v, "SERVE_") && !strings.HasPrefix(v, serverPrefix) {
			n++
		}
	}
	return n
}

// option returns the value of --name=VALUE.
func option(args []string, name, missing string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return missing
}

// connect does what agnhost's connect does, with its words for what went wrong.
func connect(args []string) int {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	timeout, err := time.ParseDuration(option(args, "timeout", "1s"))
	if at < 0 || err != nil {
		fmt.Fprintln(os.Stderr, "OTHER: want connect [--timeout=DURATION] --protocol=sctp HOST:PORT")
		return 1
	}
	address, err := net.ResolveTCPAddr("tcp", args[at])
	if err != nil {
		fmt.Fprintln(os.Stderr, "DNS:", err)
		return 1
	}
	err = associate(address.IP, uint16(address.Port), timeout)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		fmt.Fprintln(os.Stderr, "TIMEOUT")
	case err != nil:
		fmt.Fprintln(os.Stderr, "OTHER:", err)
	default:
		return 0
	}
	return 1
}
