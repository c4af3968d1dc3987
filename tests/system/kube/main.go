package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == initCommand {
		fmt.Fprintln(os.Stderr, supervise(os.Args[2]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == servicesCommand {
		fmt.Fprintln(os.Stderr, translate(ctx, os.Args[2]))
		os.Exit(1)
	}
	if filepath.Base(os.Args[0]) == chownCommand {
		if err := chown(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1)
	}
}

// dirVariable is the environment variable that names the folder of a cluster.
const dirVariable = "SLUICE_KUBE"

func defaultDir() string { return filepath.Join(os.TempDir(), "sluice-kube") }

// command returns the command line.
func command() *cobra.Command {
	l := &lab{}
	c := &cobra.Command{
		Use: "kube", Short: "A real Kubernetes with Sluice on this machine, in namespaces of its own",
		Example: `  go run ./tests/system/kube up                          # two nodes, kube-proxy in nftables mode
  go run ./tests/system/kube up --proxy iptables --cni bridge
  go run ./tests/system/kube up --dataplane vpp          # pods on a VPP of each node, which SLUICE_VPP_BIN names
  go run ./tests/system/kube kubectl get pods -A -o wide
  go run ./tests/system/kube exec node-1 -- sluicectl get endpoints
  go run ./tests/system/kube down`,
		SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) (err error) {
			if os.Geteuid() != 0 {
				return errors.New("this needs root: it makes namespaces and mounts")
			}
			if l.dir, err = filepath.Abs(l.dir); err != nil || c.Name() == "up" {
				return err
			}
			return l.load()
		},
	}
	c.PersistentFlags().StringVar(&l.dir, "dir", cmp.Or(os.Getenv(dirVariable), defaultDir()), "folder for everything that is written; its default is in SLUICE_KUBE, too")
	up := &cobra.Command{
		Use: "up", Short: "Start what is not running, and install Sluice", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return l.up(c.Context()) },
	}
	f := up.Flags()
	f.StringVar(&l.Bin, "bin", "bin", "folder with the binaries of Sluice")
	f.StringVar(&l.Kube, "kube-bin", "bin/tools/kube", "folder with the binaries of Kubernetes and etcd")
	f.StringVar(&l.CoreDNS, "coredns", "bin/tools/coredns", "binary of CoreDNS")
	f.StringVar(&l.SCTP, "sctp", "bin/tools/agnhost", "binary of tests/system/kube/agnhost, for kernels without SCTP")
	f.StringVar(&l.Source, "source", ".", "checkout of Sluice, for deploy/")
	f.StringVar(&l.CNI, "cni", "ptp", "main CNI plugin: ptp or bridge")
	f.StringVar(&l.Dataplane, "dataplane", dataplaneKernel, "what pods are connected to, and policy is enforced in: kernel or vpp")
	f.StringVar(&l.VPP, "vpp", os.Getenv("SLUICE_VPP_BIN"), "binary of VPP, for --dataplane vpp; its default is in SLUICE_VPP_BIN")
	f.StringVar(&l.Proxy, "proxy", "nftables", "mode of kube-proxy: nftables, iptables or ipvs")
	f.StringVar(&l.Family, "family", "ipv4", "addresses of machines, pods and services: ipv4, ipv6 or dual")
	f.IntVar(&l.Nodes, "nodes", 2, "number of nodes, 1 to 9")
	f.BoolVar(&l.Bare, "bare", false, "without Sluice")
	c.AddCommand(up,
		&cobra.Command{
			Use: "down", Short: "Stop everything and remove what it left", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return l.down() },
		},
		&cobra.Command{
			Use: "restart NODE", Short: "Turn a node off and on: its processes, /run and interfaces are gone, its files stay", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return l.restart(args[0]) },
		},
		&cobra.Command{
			Use: "status", Short: "Show which programs run", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return l.status(c.OutOrStdout()) },
		},
		&cobra.Command{
			Use: "kubectl ARGUMENT...", Short: "Run kubectl as an administrator", DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error { return l.become(control, append(l.kubectl(), args...)) },
		},
		&cobra.Command{
			Use: "exec NODE -- COMMAND...", Short: "Run a command on a node, or on \"" + control + "\"", Args: cobra.MinimumNArgs(2),
			RunE: func(_ *cobra.Command, args []string) error { return l.become(args[0], args[1:]) },
		},
		suitesCommand(l))
	return c
}
