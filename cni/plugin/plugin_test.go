package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/plugin"
)

// serve runs an agent that answers on a socket.
func serve(t *testing.T, answer call.Answer) (socket string) {
	socket = filepath.Join(t.TempDir(), "cni.sock")
	l, err := call.Listen(t.Context(), socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- call.Serve(ctx, l, slog.New(slog.DiscardHandler), func(context.Context, call.Request) call.Answer { return answer })
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return socket
}

// funcs returns the functions of a plugin with these sockets in its sockets file.
func funcs(t *testing.T, sockets ...string) skel.CNIFuncs {
	t.Helper()
	program := filepath.Join(t.TempDir(), "coe-cni")
	require.NoError(t, os.WriteFile(program+call.SocketsSuffix, []byte(strings.Join(sockets, "\n")), 0o644))
	return plugin.Funcs(program)
}

func arguments(socket string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", StdinData: fmt.Appendf(nil, `{"cniVersion":"1.1.0","socket":%q}`, socket)}
}

func code(t *testing.T, err error) uint {
	t.Helper()
	var said *types.Error
	require.ErrorAs(t, err, &said)
	return said.Code
}

func TestNoAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	none, f := arguments(socket), funcs(t, socket)
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Add(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Check(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Del(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.GC(none)))
	require.EqualValues(t, types.ErrPluginNotAvailable, code(t, f.Status(none)))
}

func TestAnswers(t *testing.T) {
	no, yes := serve(t, call.Answer{Error: types.NewError(7, "no", "because")}), serve(t, call.Answer{})
	f := funcs(t, "", no, "relative", yes)
	refused := arguments(no)
	require.EqualValues(t, 7, code(t, f.Add(refused)))
	require.EqualValues(t, 7, code(t, f.Status(refused)))
	empty := arguments(yes)
	require.NoError(t, f.Del(empty))
	require.ErrorContains(t, f.Add(empty), "without a result")
}

func TestBadConfiguration(t *testing.T) {
	require.EqualValues(t, types.ErrInvalidNetworkConfig, code(t, funcs(t).Add(&skel.CmdArgs{StdinData: []byte(`{"socket":1}`)})))
}

// TestSockets: a network configuration may only name a socket of root's file, or none. A DEL goes
// to the installed agent even if the socket is not allowed.
func TestSockets(t *testing.T) {
	own := serve(t, call.Answer{})
	for name, damage := range map[string]func(file string){
		"not listed":         func(string) {},
		"writable by others": func(file string) { require.NoError(t, os.Chmod(file, 0o666)) },
		"of another user":    func(file string) { require.NoError(t, os.Chown(file, 65534, 65534)) },
		"no file":            func(file string) { require.NoError(t, os.Remove(file)) },
		"a directory":        func(file string) { require.NoError(t, errors.Join(os.Remove(file), os.Mkdir(file, 0o700))) },
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "coe-cni")
			require.NoError(t, os.WriteFile(program+call.SocketsSuffix, []byte(own+"\n"), 0o644))
			asked := arguments(own)
			if name == "not listed" {
				asked = arguments(own + "2")
			}
			damage(program + call.SocketsSuffix)
			f := plugin.Funcs(program)
			require.EqualValues(t, types.ErrInvalidNetworkConfig, code(t, f.Add(asked)))
			require.EqualValues(t, types.ErrInvalidNetworkConfig, code(t, f.GC(asked)))
			if name == "not listed" {
				require.NoError(t, f.Del(asked))
			}
		})
	}
}
