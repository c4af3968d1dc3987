package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Users enables authentication: there are a user with a password, with all rights below a prefix
// and no others, and root with the same password.
func (c *Cluster) Users(t testing.TB, name, password, prefix string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // nothing is pending
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var errs []error
	for user, role := range map[string]string{name: name, "root": "root"} {
		_, errRole := client.RoleAdd(ctx, role)
		_, errUser := client.UserAdd(ctx, user, password)
		_, errGrant := client.UserGrantRole(ctx, user, role)
		errs = append(errs, errRole, errUser, errGrant)
	}
	all := clientv3.PermissionType(clientv3.PermReadWrite)
	_, errPermit := client.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), all)
	_, errEnable := client.AuthEnable(ctx)
	if err := errors.Join(append(errs, errPermit, errEnable)...); err != nil {
		t.Fatal(err)
	}
}
