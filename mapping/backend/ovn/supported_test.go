package ovn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestOldDatabase: a backend refuses a database whose schema lacks what it needs, and does not write to it. It accepts the database
// as soon as it has the schema of a later release. It looks at the schema again when a database in use is converted.
func TestOldDatabase(t *testing.T) {
	server := ovsdb.Start(t)
	server.Convert(t, ovsdb.ChangedSchema(t, func(tables map[string]any) {
		delete(tables, "Static_MAC_Binding")
		delete(ovsdb.ColumnsOf(tables, "ACL"), "options")
		ovsdb.ColumnsOf(tables, "NAT")["external_port_range"] = map[string]any{"type": "integer"}
	}))
	b := open(t, server, func(c *ovn.Config) { c.Epoch = "1" })
	_, err := b.Read(t.Context())
	require.ErrorIs(t, err, ovn.ErrUnsupported)
	require.ErrorContains(t, err, "lacks ACL.options, NAT.external_port_range, Static_MAC_Binding")
	require.NotContains(t, server.Dump(t, "NB_Global"), "coe-bridge")

	server.Convert(t, ovsdb.Schema("ovn/ovn-nb"))
	write(t, b, someModel(b))

	server.Convert(t, ovsdb.ChangedSchema(t, func(tables map[string]any) { delete(tables, "Chassis_Template_Var") })) // of OVN 22.09
	require.Eventually(t, func() bool {
		_, err = b.Read(t.Context())
		return errors.Is(err, ovn.ErrUnsupported)
	}, patience.Patience, time.Millisecond)
	require.ErrorContains(t, err, "lacks Chassis_Template_Var")
}

// TestOldServer: a backend refuses a server that does not know the member uuid of an insert, as before Open vSwitch 3.1.
func TestOldServer(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server, func(c *ovn.Config) { c.Epoch, c.Endpoints = "1", withoutUUIDs(t, server) })
	err := b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, someModel(b)))
	require.ErrorIs(t, err, ovn.ErrUnsupported)
	require.ErrorContains(t, err, "accepts no UUIDs for new rows")
	require.NotContains(t, server.Dump(t, "NB_Global"), "coe-bridge")
}

// withoutUUIDs returns an endpoint that leads to a server and renames the member uuid of requests, so that the server does not know it.
func withoutUUIDs(t *testing.T, server *ovsdb.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	to := strings.TrimPrefix(server.Endpoint(), "unix:")
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(renaming{server}, client)
				_ = server.Close()
			}()
			go func() {
				_, _ = io.Copy(client, server)
				_ = client.Close()
			}()
		}
	}()
	return "unix:" + path
}

// renaming renames the member uuid in each write.
type renaming struct{ to io.Writer }

func (r renaming) Write(p []byte) (int, error) {
	_, err := r.to.Write(bytes.ReplaceAll(p, []byte(`"uuid":`), []byte(`"unknown":`)))
	return len(p), err
}
