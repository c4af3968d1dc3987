// Package neutron runs a real Neutron of Debian with its database, and with OVN where it is asked
// for, and compares what policies become there with the specification. Its tests skip where the
// packages are not installed.
package neutron

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
)

// Server is a Neutron without authentication.
type Server struct {
	URL string // of the network service; ends with a slash
	OVN *OVN   // nil without OVN

	dir   string
	db    string      // how Neutron connects to its database
	procs []*exec.Cmd // in the order of their start
}

// needed are what a Server needs, with the Debian package of each.
var needed = map[string]string{
	"neutron-server": "neutron-common", "neutron-db-manage": "neutron-common", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server",
}

// ovnPrograms are what a Server needs in addition for OVN.
var ovnPrograms = map[string]string{
	"ovsdb-server": "openvswitch-switch", "ovsdb-tool": "openvswitch-switch", "ovn-northd": "ovn-central", "ovn-nbctl": "ovn-common", "ovn-trace": "ovn-common",
}

// Missing returns why this machine cannot run a Server; nil: it can.
func Missing(ovn bool) error {
	need := []map[string]string{needed}
	if ovn {
		need = append(need, ovnPrograms)
	}
	for _, m := range need {
		for program, pkg := range m {
			if _, err := exec.LookPath(program); err != nil {
				return fmt.Errorf("no %s: install %s", program, pkg)
			}
		}
	}
	return nil
}

// Start starts a Server in a directory, which the user mysql must be able to enter.
func Start(ctx context.Context, dir string, ovn bool) (s *Server, err error) {
	s = &Server{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.db, err = s.database(ctx); err != nil {
		return s, err
	}
	if ovn {
		if s.OVN, err = s.startOVN(ctx); err != nil {
			return s, err
		}
	}
	if s.URL, err = s.serve(ctx, "auth_strategy = noauth", "", true); err != nil {
		return s, err
	}
	return s, until(ctx, s.URL, func() error { return answers(ctx, s.URL+"v2.0/networks") })
}

// serve starts an API with further settings, those of [DEFAULT] and sections, and returns its URL.
func (s *Server) serve(ctx context.Context, defaults, sections string, migrate bool) (string, error) {
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	conf := filepath.Join(s.dir, fmt.Sprintf("neutron%d.conf", port))
	if err := os.WriteFile(conf, []byte(s.config(port, defaults)+sections), 0o600); err != nil {
		return "", err
	}
	if migrate {
		if err := s.run(ctx, "neutron-db-manage", "--config-file", conf, "upgrade", "head"); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("http://127.0.0.1:%d/", port), s.start(ctx, "neutron-server", "--config-file", conf)
}

// Client returns a client of the network service.
func (s *Server) Client(ctx context.Context) (*gophercloud.ServiceClient, error) {
	return neutron.NoAuth(s.URL, http.DefaultTransport)(ctx)
}

// Close ends all processes, the last one first.
func (s *Server) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.procs) {
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
		_ = c.Wait() // it was killed
	}
	s.procs = nil
	return errors.Join(errs...)
}

// database starts MariaDB with an empty database, and returns how Neutron connects to it.
func (s *Server) database(ctx context.Context) (string, error) {
	data, socket := filepath.Join(s.dir, "mysql"), filepath.Join(s.dir, "mysql", "s")
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	if err := s.run(ctx, "mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+data, "--skip-test-db", "--auth-root-authentication-method=normal"); err != nil {
		return "", err
	}
	err = s.start(ctx, "mariadbd", "--no-defaults", "--user=mysql", "--datadir="+data, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port),
		"--socket="+socket, "--pid-file="+filepath.Join(data, "pid"), "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin")
	if err != nil {
		return "", err
	}
	const sql = `create database neutron character set utf8; create user n@'127.0.0.1' identified by 'n'; grant all on neutron.* to n@'127.0.0.1'`
	err = until(ctx, "MariaDB", func() error { return s.run(ctx, "mariadb", "--no-defaults", "-S", socket, "-e", sql) })
	return fmt.Sprintf("mysql+pymysql://n:n@127.0.0.1:%d/neutron?charset=utf8", port), err
}

// config returns neutron.conf.
func (s *Server) config(port int, defaults string) string {
	// The driver of OVN needs a router plugin, and a worker that it can initialize.
	services, workers := "", 0
	if s.OVN != nil {
		services, workers = "ovn-router", 1
	}
	c := fmt.Sprintf(`[DEFAULT]
%s
core_plugin = ml2
service_plugins = %s
bind_host = 127.0.0.1
bind_port = %d
api_workers = %d
rpc_workers = 0
rpc_state_report_workers = 0
state_path = %s
api_paste_config = /etc/neutron/api-paste.ini
transport_url = fake://
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[database]
connection = %s
[oslo_concurrency]
lock_path = %s
[oslo_messaging_notifications]
driver = noop
[quotas]
quota_network = -1
quota_subnet = -1
quota_port = -1
quota_security_group = -1
quota_security_group_rule = -1
[ml2]
extension_drivers = port_security
`, defaults, services, port, workers, s.dir, s.db, s.dir)
	if s.OVN == nil {
		return c + "type_drivers = local\ntenant_network_types = local\nmechanism_drivers =\n"
	}
	return c + fmt.Sprintf(`type_drivers = geneve
tenant_network_types = geneve
mechanism_drivers = ovn
[ml2_type_geneve]
vni_ranges = 1:65536
max_header_size = 38
[ovn]
ovn_nb_connection = %s
ovn_sb_connection = %s
ovn_metadata_enabled = false
neutron_sync_mode = off
`, s.OVN.NB, s.OVN.SB)
}

// start starts a process group whose output goes to a file.
func (s *Server) start(ctx context.Context, name string, args ...string) error {
	out, err := os.Create(filepath.Join(s.dir, name+fmt.Sprint(len(s.procs))+".log"))
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // the process has its own
	c := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	c.Stdout, c.Stderr, c.Dir = out, out, s.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // no Pdeathsig: threads end with wires.Inside
	if err := c.Start(); err != nil {
		return err
	}
	s.procs = append(s.procs, c)
	return nil
}

// run runs a program to its end.
func (s *Server) run(ctx context.Context, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = s.dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

func freePort(ctx context.Context) (int, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// patience is how long a server may take to answer at first; machines that test are busy.
const patience = 10 * time.Minute

// until calls f until it returns no error.
func until(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return errors.Join(err, res.Body.Close())
}
