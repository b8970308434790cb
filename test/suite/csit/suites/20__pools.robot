*** Settings ***
Documentation       Pools, and the addresses that pods get from them.
Resource            ../resources/entries.resource
Resource            ../resources/netvirt.resource

Suite Setup         Begin Without Entries
Test Setup          Choose Pod Name
Test Teardown       Remove All Entries

Test Tags           pools


*** Variables ***
${POOLS}            ${DRAFT02.data}/${POOL.container}
${NETWORK}          ${POOLS}/network/${NAMESPACE}


*** Test Cases ***
A Pool Can Be Created And Deleted In Draft-02
    [Tags]    odl
    Create Replace And Delete Entry    ${DRAFT02}    ${POOL}

A Pool Can Be Created And Deleted In RFC 8040
    Create Replace And Delete Entry    ${RFC8040}    ${POOL}

A Pool Can Be Sent As XML
    Write Entry As XML    ${DRAFT02}    ${POOL}
    Request    DELETE    ${POOLS}    expected=200
    Write Entry As XML    ${RFC8040}    ${POOL}

The Specification's Pool Is Accepted With Its Slash
    [Documentation]    The printed sample: every name has its prefix, and the path ends with a slash.
    [Tags]    odl
    ${body}=    Body    specification-pool.json
    Request    POST    ${POOLS}/    ${body}    expected=204
    ${answer}=    Request    GET    ${POOLS}/network/pod-namespace    expected=200
    VAR    ${pool}    ${answer.json()}[network][0][allocation-pool][0]
    Should Be Equal    ${pool}[subnet]    192.168.10.0/24
    Should Be Equal    ${pool}[gateway]    192.168.10.2

A Pod Without An Address Gets One From Its Pool
    Write Pool And Pod
    ${address}=    Address Of The Pod
    Should Match Regexp    ${address}    ^10\\.20\\.0\\.\\d+/32$
    ${answer}=    Request    GET    ${DRAFT02_ROOT}/operational/${POOL.container}/network/${NAMESPACE}
    ...    expected=200
    Should Contain    ${answer.text}    "allocated-ip":"${address.removesuffix('/32')}"

A Waiting Pod Gets An Address When Its Pool Is Created
    ${body}=    Body    pod-without-address.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    Wait Until Keyword Succeeds    ${PATIENCE}    50ms    Problem Should Be    NoAddress
    Wait For Removal From Model    ${INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    ${body}=    Body    pool.json
    Request    POST    ${POOLS}    ${body}    expected=204
    Wait For Object    ${VPN_INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    Wait For Sync

A Pod Keeps Its Address When The Pool Is Deleted
    Write Pool And Pod
    ${before}=    Address Of The Pod
    Request    DELETE    ${NETWORK}    expected=200
    Wait For Sync
    ${after}=    Address Of The Pod
    Should Be Equal    ${after}    ${before}


*** Keywords ***
Choose Pod Name
    [Documentation]    A pod that is created again gets its former address, so each case has its own pod.
    ${uid}=    Evaluate    str(uuid.uuid4())
    VAR    ${FRESH_UID}    ${uid}    scope=TEST
    VAR    ${FRESH_NAME}    late-${uid}    scope=TEST

Write Pool And Pod
    ${body}=    Body    pool.json
    Request    POST    ${POOLS}    ${body}    expected=204
    ${body}=    Body    pod-without-address.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204

Address Of The Pod
    ${object}=    Wait For Object    ${VPN_INTERFACES}    ${NAMESPACE}:${FRESH_NAME}
    RETURN    ${object}[odl-l3vpn:adjacency][0][ip_address]

Problem Should Be
    [Documentation]    The bridge must report a problem with this reason.
    [Arguments]    ${reason}
    ${answer}=    Request    GET    ${STATUS}    expected=200
    VAR    ${problem}    ${answer.json()}[status][problem][0]
    Should Be Equal    ${problem}[reason]    ${reason}
    Should Be Equal    ${problem}[name]    ${FRESH_NAME}
