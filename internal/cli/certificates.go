package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/cli/credentials"
)

// day is what --days counts.
const day = 24 * time.Hour

func newStoreCertificates(o *options) *cobra.Command {
	var namespace string
	var days int
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Print Secrets with certificates for the etcd in sluice-ksr and for agents",
		Long: `Make a certificate authority, a certificate for the etcd in sluice-ksr (--embedded-etcd) and one for
the agents, and print them as the two Secrets that the manifests mount. The key of the authority is
not kept. To replace the certificates, run the command again, and restart sluice-ksr and the agents.`,
		Example: `  sluicectl store certificates | kubectl apply -f -
  sluicectl store certificates --days 90 --namespace sluice | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if problems := validation.IsDNS1123Label(namespace); problems != nil {
				return fmt.Errorf("--namespace %s: %s", model.Quoted(namespace), problems[0])
			}
			if days < 1 || days > 36500 {
				return errors.New("--days: want 1 to 36500")
			}
			text, err := credentials.Secrets(namespace, time.Now(), time.Duration(days)*day)
			if err == nil {
				_, err = o.out.Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceSystem, "namespace of the Secrets")
	cmd.Flags().IntVar(&days, "days", 3650, "for how long the certificates are valid")
	return cmd
}
