// approver is what a kubelet-serving approver on controller-runtime does: Nodes and requests from its cache, the request
// compared with the addresses of the requester's Node, the approval by the typed client.
//
// It prints one line when its caches are synced, and stays until it is told to end.
package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"net"
	"os"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"stratum.ciq.com/peers/cluster"
)

const userPrefix = "system:node:"

type approver struct {
	cache  client.Reader
	client kubernetes.Interface
}

func (a approver) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var csr certificates.CertificateSigningRequest
	if err := a.cache.Get(ctx, request.NamespacedName, &csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if csr.Spec.SignerName != certificates.KubeletServingSignerName || len(csr.Status.Conditions) > 0 {
		return ctrl.Result{}, nil
	}
	own, err := a.own(ctx, &csr)
	if err != nil || !own {
		// A forged one is somebody else's, as the better approvers have it.
		return ctrl.Result{}, err
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: certificates.CertificateApproved, Status: core.ConditionTrue, Reason: "Peer", Message: "its own",
	})
	_, err = a.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, &csr, meta.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

func (a approver) own(ctx context.Context, csr *certificates.CertificateSigningRequest) (bool, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return false, errors.New("no PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || parsed.Subject.CommonName != csr.Spec.Username || parsed.CheckSignature() != nil {
		return false, err
	}
	var node core.Node
	if err := a.cache.Get(ctx, client.ObjectKey{Name: csr.Spec.Username[len(userPrefix):]}, &node); err != nil {
		return false, err
	}
	known := map[string]bool{}
	for _, address := range node.Status.Addresses {
		known[address.Address] = true
	}
	for _, name := range parsed.DNSNames {
		if !known[name] {
			return false, nil
		}
	}
	for _, address := range parsed.IPAddresses {
		if !known[net.IP(address).String()] {
			return false, nil
		}
	}
	return true, nil
}

func main() {
	workers := flag.Int("workers", 1, "requests reconciled at one time")
	flag.Parse()
	log.SetLogger(klog.Background())

	// controller-runtime itself has defined the flag.
	config := cluster.Config(flag.Lookup("kubeconfig").Value.String())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	cluster.Check(err)
	// Nodes are in the cache before the first request is judged.
	_, err = manager.GetCache().GetInformer(context.Background(), &core.Node{})
	cluster.Check(err)
	typed, err := kubernetes.NewForConfig(config)
	cluster.Check(err)
	err = ctrl.NewControllerManagedBy(manager).
		For(&certificates.CertificateSigningRequest{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).
		Complete(approver{cache: manager.GetCache(), client: typed})
	cluster.Check(err)

	began := time.Now()
	stop := signals.SetupSignalHandler()
	ended := make(chan error)
	go func() { ended <- manager.Start(stop) }()
	if !manager.GetCache().WaitForCacheSync(stop) {
		cluster.Check(errors.New("the cache did not sync"))
	}
	cluster.Print(map[string]any{"pid": os.Getpid(), "syncedSeconds": time.Since(began).Seconds()})
	cluster.Check(<-ended)
}
